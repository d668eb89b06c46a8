"""`POST /api/backup`: copy the ledger into `BACKUP_DIR`, and nowhere else (S1)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import FastAPI
from pydantic import BaseModel, Field

from ackbox.app.backends import NO_COPY
from ackbox.errors import AckboxError, CommandFailed
from ackbox.http.ndjson import NdjsonResponse
from ackbox.http.openapi import add, problem_responses
from ackbox.http.problems import HttpError
from ackbox.http.routes import Route
from ackbox.ports import CopyableStore
from ackbox.runtime import Runtime

_NAME_LENGTH = 255
_DISABLED = (
    "Backups over HTTP are disabled: set ACKBOX_BACKUP_DIR to a folder for them, or run `ackbox "
    "backup FILE` on the machine of the server."
)
_BAD_NAME = "name must be the name of a new file in BACKUP_DIR, without a folder, as in events.db."


class BackupRequest(BaseModel, extra="forbid"):
    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=_NAME_LENGTH,
            description="The name of a new file in BACKUP_DIR.",
            json_schema_extra={"pattern": r"^[^/\u0000-\u001f]+$"},
        ),
    ]


def add_backup_route(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api,
        Route.BACKUP,
        response_class=NdjsonResponse,
        responses=problem_responses(400, 403, 503),
        tags=["operations"],
    )
    async def backup(backup_request: BackupRequest) -> NdjsonResponse:
        """Copy the ledger into a new file in `BACKUP_DIR`. The response is NDJSON that reports the
        progress; its last line is `{"done": true}` or `{"error": "..."}`."""
        target = _target(runtime.settings.backup_dir, backup_request.name)
        return NdjsonResponse(_progress_lines(runtime, target))


def _target(folder: Path | None, name: str) -> Path:
    """Return the path of the backup. A plain name cannot lead out of the folder; the copy refuses
    links."""
    if folder is None:
        raise HttpError(403, _DISABLED)
    if "/" in name or name in {".", ".."} or not name.isprintable():
        raise HttpError(400, _BAD_NAME)
    return folder.absolute() / name


async def _progress_lines(runtime: Runtime, target: Path) -> AsyncIterator[bytes]:
    try:
        if not isinstance(store := runtime.store, CopyableStore):
            raise CommandFailed(NO_COPY)
        async for progress in store.backup(target):
            yield msgspec.json.encode(progress) + b"\n"
    except AckboxError as error:
        yield msgspec.json.encode({"error": str(error)}) + b"\n"
    except OSError as error:  # the folder or the name is unusable, before the copy began (S13)
        message = f"Cannot write {target}: {error.strerror}."
        yield msgspec.json.encode({"error": message}) + b"\n"
    else:
        yield msgspec.json.encode({"done": True}) + b"\n"
