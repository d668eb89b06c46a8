"""Refuse `sqlite3.connect` on a ledger that is open in this process.

Python's sqlite3, and libraries built on it (SQLAlchemy, aiosqlite), raise an audit event before
they open a file. ATTACH and other libraries raise none: only the shared locks and the writer's
check of the files protect against those.
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
    """Refuse connections to this ledger until the returned function is called."""
    ledgers = _open_ledgers()
    status = ledger.stat()
    identity = status.st_dev, status.st_ino
    ledgers[identity] = ledger

    def allow() -> None:
        ledgers.pop(identity, None)

    return allow


@cache
def _open_ledgers() -> dict[Identity, Path]:
    """Return the ledgers that are open in this process, and install the audit hook that checks
    them. A hook can never be removed and is called for every audit event, so there is only one
    hook, and it returns early."""
    ledgers: dict[Identity, Path] = {}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "sqlite3.connect" and ledgers:
            _assert_no_ledger(arguments[0], ledgers)

    sys.addaudithook(hook)
    return ledgers


def _assert_no_ledger(database: object, ledgers: dict[Identity, Path]) -> None:
    for path in _paths(database):
        ledger = ledgers.get(_identity(path))
        if ledger is not None:
            raise ForeignConnection(
                f"{ledger} is the ledger of an inbox in this process. Another SQLite library that "
                "opens it here would drop its locks. Read it with `await inbox.read(...)`, "
                "write with `tx`, or open it in another process."
            )


def _paths(database: object) -> list[bytes]:
    """Return the paths that this argument of `connect` may mean. The hook cannot know whether
    sqlite3 will treat a `file:` argument as a URI, so both meanings count."""
    try:
        path = os.fsencode(database)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []  # sqlite3 raises an error of its own
    return [path, _path_of_uri(path)] if path.startswith(b"file:") else [path]


def _path_of_uri(uri: bytes) -> bytes:
    path = uri.removeprefix(b"file:").partition(b"#")[0].partition(b"?")[0]
    if path.startswith(b"//"):
        path = b"/" + path[2:].partition(b"/")[2]
    return unquote_to_bytes(path).partition(b"\0")[0]  # SQLite ends the path there too


def _identity(path: bytes) -> Identity:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path cannot hold bytes
    except (OSError, ValueError):
        return -1, -1
    return status.st_dev, status.st_ino
