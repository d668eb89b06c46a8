"""The names that belong to a ledger: the file itself, and what SQLite and ackbox keep beside it."""

import errno
import os
from pathlib import Path

from ackbox.errors import StoreError

SIDE_SUFFIXES = ("-wal", "-shm", "-journal", ".lock", ".reserve", ".token", ".new")


def beside(ledger: Path, suffix: str) -> Path:
    return ledger.with_name(ledger.name + suffix)


def resolve(path: Path) -> Path:
    """Return the path without symbolic links. Raise `OSError` if they form a loop, which
    `Path.resolve` reports in a way of its own in each Python."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return Path(os.path.realpath(path))


def resolve_ledger(path: Path) -> Path:
    """Return the ledger file itself: what lies beside it does not lie beside a link to it. Raise
    `StoreError` if the links form a loop."""
    try:
        return resolve(path)
    except OSError as error:
        raise StoreError(
            f"Cannot open the ledger {path}: its symbolic links form a loop. Set DB_PATH to "
            "another path, or remove the link."
        ) from error


def ledger_names(ledger: Path) -> frozenset[Path]:
    """Return every path that belongs to this ledger, whether a file is there or not.

    A ledger that is opened through a symbolic link has the names beside the link too.
    """
    files = (ledger.absolute(), resolve(ledger))
    return frozenset(beside(file, suffix) for file in files for suffix in ("", *SIDE_SUFFIXES))


def belongs_to_ledger(path: Path, ledger: Path) -> bool:
    """Return whether a file written to this path would take a name of the ledger."""
    return resolve(path.parent) / path.name in ledger_names(ledger)
