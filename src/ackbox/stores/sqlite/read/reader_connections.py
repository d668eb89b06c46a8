"""The read-only connections of a process, each used by one thread at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue
from threading import Lock

import apsw

from ackbox.stores.sqlite.connections import open_reader


class ReaderConnections:
    """A pool of connections. Each is opened when first used, and is out of the queue while in
    use."""

    def __init__(self, path: Path, count: int, *, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._count = count
        self._idle: LifoQueue[apsw.Connection | None] = LifoQueue()
        for _ in range(count):
            self._idle.put(None)
        self._closing = Lock()  # two threads that each took some would deadlock

    @contextmanager
    def use(self) -> Iterator[apsw.Connection]:
        connection = self._idle.get()
        try:
            if connection is None:
                connection = open_reader(self._path, vfs=self._vfs)
            yield connection
        finally:
            self._idle.put(connection)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait for running reads and close all connections. New reads wait until the block ends."""
        with self._closing:
            gathered = [self._idle.get() for _ in range(self._count)]
            try:
                for connection in gathered:
                    if connection is not None:
                        connection.close(True)
                yield
            finally:
                for _ in range(self._count):
                    self._idle.put(None)

    def close(self) -> None:
        with self.closed():
            pass
