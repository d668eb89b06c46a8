"""`ackbox backup`: an online copy in small steps (W12).

The steps run on the writer's own connection, between transactions: SQLite then carries every later
change into the copy, so the copy never starts over and no read stays open while the log grows.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw

from ackbox.errors import StoreError
from ackbox.model import BackupProgress
from ackbox.stores.sqlite.writer import Writer

_PAGES_A_STEP = 256


class Backup:
    """Iterate to copy; each item says how far it is. The target must not exist yet."""

    def __init__(self, writer: Writer, target: Path) -> None:
        self._writer = writer
        self._target = target

    async def __aiter__(self) -> AsyncIterator[BackupProgress]:
        if self._target.exists():
            raise StoreError(f"{self._target} exists already; name a file that does not.")
        draft = self._target.with_name(self._target.name + ".part")
        draft.unlink(missing_ok=True)
        copy = await self._writer.submit(lambda source: _Copy(source, draft), alone=True)
        try:
            while not copy.done:
                yield await self._writer.submit(lambda _: copy.step(), alone=True)
            await self._writer.submit(lambda _: copy.finish(), alone=True)
            draft.replace(self._target)
        finally:
            await self._writer.submit(lambda _: copy.close(), alone=True)
            draft.unlink(missing_ok=True)


class _Copy:
    """Touched by the writer thread only."""

    def __init__(self, source: apsw.Connection, draft: Path) -> None:
        try:
            draft.touch(mode=0o600)
        except OSError as error:
            raise StoreError(f"Cannot write {draft}: {error.strerror}.") from error
        self._target = apsw.Connection(str(draft))
        self._target.pragma("synchronous", "off")  # one sync at the end is enough
        self._backup = self._target.backup("main", source, "main")

    @property
    def done(self) -> bool:
        return self._backup.done

    def step(self) -> BackupProgress:
        self._backup.step(_PAGES_A_STEP)
        total = self._backup.page_count
        return BackupProgress(total - self._backup.remaining, total)

    def finish(self) -> None:
        self._backup.finish()
        found = self._target.pragma("quick_check", 1)
        if found != "ok":
            raise StoreError(f"The copy is damaged ({found}); it was removed.")
        path = Path(self._target.filename)
        self._target.close()
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def close(self) -> None:
        self._backup.close(True)
        self._target.close(True)
