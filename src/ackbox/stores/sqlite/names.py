"""The names that belong to a ledger: the file itself, and what SQLite and ackbox keep beside it."""

from pathlib import Path

SIDE_SUFFIXES = ("-wal", "-shm", "-journal", ".lock", ".reserve", ".token", ".new")


def beside(ledger: Path, suffix: str) -> Path:
    return ledger.with_name(ledger.name + suffix)


def ledger_names(ledger: Path) -> frozenset[Path]:
    """Return every path that belongs to this ledger, whether a file is there or not.

    A ledger that is opened through a symbolic link has the names beside the link too.
    """
    files = (ledger.absolute(), ledger.resolve())
    return frozenset(beside(file, suffix) for file in files for suffix in ("", *SIDE_SUFFIXES))


def belongs_to_ledger(path: Path, ledger: Path) -> bool:
    """Return whether a file written to this path would take a name of the ledger."""
    return path.parent.resolve() / path.name in ledger_names(ledger)
