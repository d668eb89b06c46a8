"""The operator token of a ledger whose settings name none, in a file beside it (S5).

A user who can read or replace the file can operate the inbox. So only its owner has access to the
file, and a file that another user could have read or written is refused.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from ackbox.errors import StoreError
from ackbox.stores.sqlite.names import beside

_MAX_BYTES = 4096
_TOKEN = re.compile(r"[!-~]{16,4096}")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_REMEDY = "Remove the file, and the next start creates a new one; or set ACKBOX_API_TOKEN."


def token_path(ledger: Path) -> Path:
    """Return the token path beside the file itself, so that a link to the ledger has the same
    token."""
    return beside(ledger.resolve(), ".token")


def ensure_token(ledger: Path, make: Callable[[], str]) -> tuple[str, bool]:
    """Return the token, and whether it was created now. The caller holds the ledger's lock."""
    existing = read_token(ledger)
    if existing is not None:
        return existing, False
    path, token = token_path(ledger), make()
    try:
        _write(path, token)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}. {_REMEDY}") from error
    return token, True


def read_token(ledger: Path) -> str | None:
    """Return the token; None if there is none. Raise `StoreError` if the file cannot be trusted.

    An empty file counts as none: the process died between creating and writing it.
    """
    path = token_path(ledger)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, _why_unopened(error)) from error
    try:
        if (flaw := find_flaw(os.fstat(fd), _owners(ledger))) is not None:
            raise _refused(path, flaw)
        text = os.read(fd, _MAX_BYTES + 2).decode("latin-1").removesuffix("\n")
    finally:
        os.close(fd)
    if text and not _TOKEN.fullmatch(text):
        raise _refused(path, "it must hold one line of 16 to 4096 visible ASCII characters")
    return text or None


def _write(path: Path, token: str) -> None:
    path.unlink(missing_ok=True)  # an empty file, if an earlier start died here
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        os.write(fd, f"{token}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _owners(ledger: Path) -> set[int]:
    """Return the users who may own the token: the user of this process, and the owner of the
    ledger, so that root can run commands on the ledger of a service."""
    try:
        return {os.geteuid(), ledger.stat().st_uid}
    except OSError:
        return {os.geteuid()}


def find_flaw(status: os.stat_result, owners: set[int]) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in owners:
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_nlink != 1:
        return "it has a second name (a hard link)"
    if status.st_mode & 0o077:
        return f"other users have access to it (mode {status.st_mode & 0o777:04o})"
    return None


def _why_unopened(error: OSError) -> str:
    is_link = error.errno == errno.ELOOP
    return "it is a symbolic link" if is_link else f"it cannot be read ({error.strerror})"


def _refused(path: Path, flaw: str) -> StoreError:
    return StoreError(f"The operator token in {path} is refused: {flaw}. {_REMEDY}")
