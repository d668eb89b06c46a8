"""Refuse new events while the disk is nearly full, and report both changes (F9)."""

from ackbox.errors import StorageFull
from ackbox.stores.sqlite.write.reserve import Reserve
from ackbox.stores.sqlite.write.writer import Writer
from ackbox.telemetry import Observer, StoreFailed, StoreRecovered


class DiskSpace:
    """The free space of the disk, as far as `record` is concerned."""

    def __init__(self, reserve: Reserve, writer: Writer, observe: Observer) -> None:
        self._reserve = reserve
        self._writer = writer
        self._observe = observe
        self._reported_full = False
        # SQLite reported a full disk although we measure free space (because of a quota, for
        # example). Only a successful `record` shows that this is over.
        self._is_unexplained = False

    @property
    def full_reason(self) -> str | None:
        """Why the disk is too full for new events; None if it is not."""
        return self._reserve.reason if self._reserve.full else None

    def assert_not_full(self) -> None:
        if self._reserve.full:
            raise StorageFull(self._reserve.reason, retry_after=5)

    def check(self) -> None:
        """Notice a full disk before SQLite does, and its end; and a ledger that was moved, even
        while no operation runs. Called about once a second."""
        self._writer.inspect()
        if self._reserve.check():
            self._is_unexplained = False
            self._report(full=True)
        elif not self._is_unexplained:
            self._report(full=False)

    def note_recorded(self) -> None:
        if self._is_unexplained:
            self._is_unexplained = False
            self._report(full=False)

    def note_full(self) -> None:
        """Refuse new events, because SQLite reported a full disk."""
        if not self._reserve.full:
            self._reserve.give_up()
            self._is_unexplained = True
            self._report(full=True)

    def _report(self, *, full: bool) -> None:
        """Report that the disk became full, or has space again, once for each change."""
        if full != self._reported_full:
            self._reported_full = full
            self._observe(StoreFailed(self._reserve.reason) if full else StoreRecovered())
