"""The table `submissions` on SQLite. Only this process writes to it."""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta

import apsw

from ackbox.errors import StorageFull
from ackbox.model import Clock, Moved, Submission
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.disk_space import DiskSpace
from ackbox.stores.sqlite.write.queue import SqliteQueue
from ackbox.stores.sqlite.write.record import RecordOperations
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.stores.submissions import MOVE_BYTES, MOVE_ROWS, to_envelopes


class SqliteSubmissions:
    """Implements `Submissions`. After a move that found nothing, the writer is not asked again
    until a handler has sent an event. Moves take turns: when one returns, everything that was sent
    before it is recorded, also what another move took."""

    def __init__(
        self,
        writer: Writer,
        queue: SqliteQueue,
        operations: RecordOperations,
        disk_space: DiskSpace,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._queue = queue
        self._operations = operations
        self._disk_space = disk_space
        self._clock = clock
        self._turn = asyncio.Lock()
        queue.has_submissions.set()  # an earlier process may have left some

    async def move(self) -> Moved:
        async with self._turn:
            return await self._move_next()

    async def _move_next(self) -> Moved:
        if not self._queue.has_submissions.is_set():
            return Moved()
        self._disk_space.assert_not_full()
        self._queue.has_submissions.clear()
        try:
            moved = await self._writer.submit(self._move)
        except BaseException as error:
            self._queue.has_submissions.set()
            if isinstance(error, StorageFull):
                self._disk_space.note_full()
            raise
        if moved.envelopes:
            self._queue.has_submissions.set()
            self._queue.wake()
        return moved

    async def wait(self, timeout: timedelta) -> None:
        with suppress(TimeoutError):  # `wait_for` of Python 3.11 may lose a cancellation
            async with asyncio.timeout(timeout.total_seconds()):
                await self._queue.has_submissions.wait()

    def _move(self, connection: apsw.Connection) -> Moved:
        limits = {"limit": MOVE_ROWS, "bytes": MOVE_BYTES}
        rows = Statements(connection).run("take_submissions", **limits).fetchall()
        if not rows:
            return Moved()
        envelopes = to_envelopes(rows, self._clock(), random.getrandbits)
        record = self._operations.record([Submission(envelopes)], self._clock)
        return Moved(envelopes, record(connection))
