"""Refuse `sqlite3.connect` on a ledger that is open in this process.

Python's sqlite3, and what is built on it (SQLAlchemy, aiosqlite), raises an audit event before it
opens a file. ATTACH and libraries other than sqlite3 raise none: against those, only the shared
locks and the check of the writer help.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import unquote_to_bytes

from ackbox.errors import ForeignConnection

Identity = tuple[int, int]


def refuse_in_process(ledger: Path) -> Callable[[], None]:
    """Refuse from now on; call what is returned when the ledger is closed."""
    ledgers = _open_ledgers()
    found = ledger.stat()
    identity = found.st_dev, found.st_ino
    ledgers[identity] = ledger

    def allow() -> None:
        ledgers.pop(identity, None)

    return allow


@cache
def _open_ledgers() -> dict[Identity, Path]:
    """Return the ledgers that are open in this process. One audit hook knows them: a hook can never
    be removed, and is called for every audit event, so there is one and it leaves early."""
    ledgers: dict[Identity, Path] = {}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "sqlite3.connect" and ledgers:
            _assert_another_file(arguments[0], ledgers)

    sys.addaudithook(hook)
    return ledgers


def _assert_another_file(database: object, ledgers: dict[Identity, Path]) -> None:
    for path in _paths(database):
        ledger = ledgers.get(_identity(path))
        if ledger is not None:
            raise ForeignConnection(
                f"{ledger} is the ledger of an inbox in this process, and another SQLite library "
                "that opens it here takes away its locks. Read it with `await inbox.read(...)`, "
                "write with `tx`, or open it in another process."
            )


def _paths(database: object) -> list[bytes]:
    """Return the paths that this argument of `connect` may mean. Whether a `file:` URI is taken for
    one is not said to the hook."""
    try:
        path = os.fsencode(database)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []  # sqlite3 will say so itself
    return [path, _path_of_uri(path)] if path.startswith(b"file:") else [path]


def _path_of_uri(uri: bytes) -> bytes:
    path = uri.removeprefix(b"file:").partition(b"#")[0].partition(b"?")[0]
    if path.startswith(b"//"):
        path = b"/" + path[2:].partition(b"/")[2]
    return unquote_to_bytes(path).partition(b"\0")[0]  # where SQLite ends it too


def _identity(path: bytes) -> Identity:
    try:
        found = os.stat(path)  # noqa: PTH116 - bytes are no Path
    except (OSError, ValueError):
        return -1, -1
    return found.st_dev, found.st_ino
