"""The operator token of a ledger whose settings name none, in a file beside it (S5).

Whoever can read or replace the file can operate the inbox. So the file is created for its owner
alone, and one that somebody else could have written or read is refused.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from ackbox.errors import StoreError
from ackbox.stores.sqlite.names import beside

_LONGEST = 4096
_TOKEN = re.compile(r"[!-~]{16,4096}")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
_REMEDY = "Remove the file, and the next start creates a new one; or set API_TOKEN."


def token_path(ledger: Path) -> Path:
    """Return the path beside the file itself: a link to a ledger has no token of its own."""
    return beside(ledger.resolve(), ".token")


def ensure_token(ledger: Path, make: Callable[[], str]) -> tuple[str, bool]:
    """Return the token, and whether it was created now. The caller holds the ledger's lock."""
    found = read_token(ledger)
    if found is not None:
        return found, False
    path, made = token_path(ledger), make()
    try:
        _write(path, made)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}. {_REMEDY}") from error
    return made, True


def read_token(ledger: Path) -> str | None:
    """Return the token; None if there is none. Raise `StoreError` if the file is not to be trusted.

    An empty file counts as none: a start died between creating and writing it.
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
        text = os.read(fd, _LONGEST + 2).decode("latin-1").removesuffix("\n")
    finally:
        os.close(fd)
    if text and not _TOKEN.fullmatch(text):
        raise _refused(path, "it must hold one line of 16 to 4096 visible ASCII characters")
    return text or None


def _write(path: Path, token: str) -> None:
    path.unlink(missing_ok=True)  # the empty file of a start that died here
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        os.write(fd, f"{token}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _owners(ledger: Path) -> set[int]:
    """The user that runs this process, and the owner of the ledger, so that root can run commands
    on the ledger of a service."""
    try:
        return {os.geteuid(), ledger.stat().st_uid}
    except OSError:
        return {os.geteuid()}


def find_flaw(found: os.stat_result, owners: set[int]) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_uid not in owners:
        return f"it belongs to another user (uid {found.st_uid})"
    if found.st_nlink != 1:
        return "it has a second name (a hard link)"
    if found.st_mode & 0o077:
        return f"other users have access to it (mode {found.st_mode & 0o777:04o})"
    return None


def _why_unopened(error: OSError) -> str:
    is_link = error.errno == errno.ELOOP
    return "it is a symbolic link" if is_link else f"it cannot be read ({error.strerror})"


def _refused(path: Path, flaw: str) -> StoreError:
    return StoreError(f"The operator token in {path} is refused: {flaw}. {_REMEDY}")
