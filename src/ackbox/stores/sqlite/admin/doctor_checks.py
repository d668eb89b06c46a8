"""Checks of `ackbox doctor` around a ledger: SQLite itself, the disk, the files, the clock."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ackbox.documentation import name_page
from ackbox.model import Finding, Verdict
from ackbox.stores.sqlite.connections import has_wal_reset_bug
from ackbox.stores.sqlite.lock import Holder, has_lost_its_name
from ackbox.stores.sqlite.names import SIDE_SUFFIXES, beside
from ackbox.stores.sqlite.write.reserve import LOW_BYTES, resume_bytes

_MIB = 1024 * 1024
_ROOM_ADVISED = 1024 * _MIB
_YEARS = range(2025, 2100)
_DELETED = " (deleted)"
_OCTAL = re.compile(r"\\([0-7]{3})")
_SHARED = re.compile(
    r"9p|afs|ceph|cifs|fuse\.(glusterfs|rclone|s3fs|sshfs)|lustre|ncpfs|nfs4?|smb3|smbfs|vboxsf"
)


def check_engine(version: str) -> Finding:
    if has_wal_reset_bug(version):
        return Finding(
            "sqlite",
            Verdict.FAIL,
            f"SQLite {version} can corrupt a database in WAL mode.",
            "Install a fixed version: pip install --upgrade apsw",
        )
    return Finding("sqlite", Verdict.OK, f"SQLite {version}")


def check_folder(folder: Path) -> Finding:
    if not folder.is_dir():
        detail, remedy = "does not exist", f"Create it: mkdir -p {folder}"
    elif not os.access(folder, os.W_OK | os.X_OK):
        detail = "is not writable by this user"
        remedy = (
            "Run ackbox as its owner, or set another ACKBOX_DB_PATH: files are created beside it."
        )
    else:
        return Finding("folder", Verdict.OK, f"{folder} is writable")
    return Finding("folder", Verdict.FAIL, f"{folder}, the folder of DB_PATH, {detail}.", remedy)


def check_free_space(free: int) -> Finding:
    shown = f"{free // _MIB} MiB free"
    refused = f"below {LOW_BYTES // _MIB} MiB new events are refused"
    accepted = f"from {resume_bytes() // _MIB} MiB on they are accepted again"
    if free < LOW_BYTES:
        detail = f"{shown}: {refused}."
        return Finding(
            "room", Verdict.FAIL, detail, f"Free some space; {accepted}, without a restart."
        )
    if free < _ROOM_ADVISED:
        remedy = f"Free some space: {refused}; {accepted}."
        return Finding("room", Verdict.WARN, f"Only {shown}.", remedy)
    return Finding("room", Verdict.OK, shown)


def check_filesystem(kind: str | None) -> Finding:
    if kind and _SHARED.fullmatch(kind):
        remedy = "Keep the ledger on a disk of this machine."
        detail = f"{kind} is shared over a network: SQLite's locks are not reliable there."
        return Finding("filesystem", Verdict.WARN, detail, remedy)
    if kind in {"tmpfs", "ramfs"}:
        detail = f"{kind} is memory: a restart of the machine loses every event."
        return Finding("filesystem", Verdict.WARN, detail, "Keep the ledger on a disk.")
    return Finding("filesystem", Verdict.OK, kind or "of unknown kind")


def check_files(path: Path) -> Iterator[Finding]:
    existing = [file for suffix in ("", *SIDE_SUFFIXES) if (file := beside(path, suffix)).exists()]
    flaws = [*_locked_out(existing), *_too_open(existing), *_mixed(path, existing)]
    yield from flaws or [Finding("files", Verdict.OK, "permissions are correct")]


def check_moved(path: Path, holder: Holder) -> Iterator[Finding]:
    """Report a ledger that was moved, deleted or replaced under its server."""
    if has_lost_its_name(path, holder):
        yield Finding(
            "files",
            Verdict.FAIL,
            f"Process {holder.pid} serves a ledger that {path} no longer names: it was moved, "
            "deleted or replaced.",
            "Do not stop it. Put the file back with `mv`, or run `ackbox backup FILE` with FILE in "
            f"the BACKUP_DIR of the server. For the steps, see {name_page('how-to/recover')}.",
        )


def check_deleted(path: Path, pid: int) -> Iterator[Finding]:
    """Report a log or lock file that was deleted or replaced while a server has it open. Only the
    user of that process can see it, and only where there is a /proc."""
    with suppress(OSError):
        targets = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        gone = {name.removesuffix(_DELETED) for name in targets if name.endswith(_DELETED)}
        for file in sorted(gone & {str(beside(path, suffix)) for suffix in ("-wal", ".lock")}):
            detail = f"Process {pid} has {file} open, which was deleted or replaced."
            remedy = "Do not stop it: it reopens its files within seconds. Then run this again."
            yield Finding("files", Verdict.FAIL, detail, remedy)


def _locked_out(files: list[Path]) -> Iterator[Finding]:
    for file in files:
        if not os.access(file, os.R_OK | os.W_OK):
            detail = f"{file} is not readable and writable by this user."
            yield Finding("files", Verdict.FAIL, detail, "Run ackbox as the user who owns it.")


def _too_open(files: list[Path]) -> Iterator[Finding]:
    """Report files that every user can access. A group may share a ledger, but a token is refused
    unless only its owner has access."""
    if exposed := [file for file in files if file.stat().st_mode & 0o007]:
        tokens = [str(file) for file in exposed if file.name.endswith(".token")]
        others = [str(file) for file in exposed if str(file) not in tokens]
        commands = [("chmod o-rwx", others), ("chmod 600", tokens)]
        detail = f"Every user of this machine has access to {' '.join(others + tokens)}."
        remedy = "; ".join(" ".join([command, *names]) for command, names in commands if names)
        yield Finding("files", Verdict.WARN, detail, remedy)


def _mixed(path: Path, files: list[Path]) -> Iterator[Finding]:
    if len({file.stat().st_uid for file in files}) > 1:
        detail = f"{path} and the files beside it belong to different users."
        yield Finding("files", Verdict.WARN, detail, f"Give all of {path}* to one user with chown.")


def check_clock(now: datetime) -> Finding:
    if now.year in _YEARS:
        return Finding("clock", Verdict.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    remedy = "Set the clock before starting: retries, leases and retention depend on it."
    return Finding("clock", Verdict.FAIL, f"The clock says {now:%Y-%m-%d}.", remedy)


def filesystem_of(folder: Path, mounts: str) -> str | None:
    """Return the kind of the innermost mount around this folder. If two mounts have the same mount
    point, the later counts."""
    innermost: tuple[int, str | None] = (0, None)
    for line in mounts.splitlines():
        _, escaped, kind, *_ = line.split(" ")
        point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), escaped)
        if folder.is_relative_to(point) and len(point) >= innermost[0]:
            innermost = (len(point), kind)
    return innermost[1]
