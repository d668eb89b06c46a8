"""The file names of a ledger: the file itself, and the files of SQLite and ackbox beside it."""

import errno
import os
from pathlib import Path

from ackbox.errors import StoreError

SIDE_SUFFIXES = ("-wal", "-shm", "-journal", ".lock", ".reserve", ".token", ".new")


def beside(ledger: Path, suffix: str) -> Path:
    return ledger.with_name(ledger.name + suffix)


def resolve(path: Path) -> Path:
    """Return the path without symbolic links. Raise `OSError` if they form a loop: each version of
    Python reports that differently from `Path.resolve`."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return Path(os.path.realpath(path))


def resolve_ledger(path: Path) -> Path:
    """Return the ledger file itself, because its log and lock are beside the file, not beside a
    link to it. Raise `StoreError` if the links form a loop."""
    try:
        return resolve(path)
    except OSError as error:
        raise StoreError(
            f"Cannot open the ledger {path}: its symbolic links form a loop. Set ACKBOX_DB_PATH to "
            "another path, or remove the link."
        ) from error


def ledger_names(ledger: Path) -> frozenset[Path]:
    """Return every path that belongs to this ledger, whether a file is there or not.

    If the ledger is a symbolic link, the names beside the link belong to it too.
    """
    files = (ledger.absolute(), resolve(ledger))
    return frozenset(beside(file, suffix) for file in files for suffix in ("", *SIDE_SUFFIXES))


def belongs_to_ledger(path: Path, ledger: Path) -> bool:
    """Return whether a file written to this path would take a name of the ledger."""
    return resolve(path.parent) / path.name in ledger_names(ledger)
