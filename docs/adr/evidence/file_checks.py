"""ADR 26: what the layers cost that keep the log of an open ledger."""
# ruff: noqa: T201

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from timeit import repeat

from ackbox.stores.sqlite.files import open_ledger
from ackbox.stores.sqlite.foreign_connections import refuse_in_process
from ackbox.stores.sqlite.ledger_files import LedgerFiles
from ackbox.stores.sqlite.lock import LedgerLock

_CALLS = 5_000


def measure(work: Callable[[], object]) -> float:
    """Microseconds of one call."""
    return min(repeat(work, number=_CALLS, repeat=9)) / _CALLS * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        lock = LedgerLock(path)
        connection = open_ledger(path, "full")
        files = LedgerFiles(lock)
        files.shared_locks.take()
        files.note_opened()
        print(f"compare the files, once for each commit   {measure(files.compare):6.2f} us")
        locks = files.shared_locks
        both = measure(lambda: (locks.take(), locks.release()))
        print(f"take and release the shared locks         {both:6.2f} us")
        before = measure(lambda: sys.audit("nobody.listens", 1))
        refuse_in_process(path)
        after = measure(lambda: sys.audit("nobody.listens", 1))
        print(f"the audit hook, once for each audit event {after - before:6.2f} us")
        locks.release()
        connection.close()
        lock.release()


if __name__ == "__main__":
    main()
