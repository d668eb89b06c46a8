"""The operator routes of the quarantine: list, show, release and drop requests."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.requests import Request

from ackbox.errors import AckboxError
from ackbox.http.event_responses import ErrorLine
from ackbox.http.events import FILE_RESPONSE, Actor, as_file, find_caller
from ackbox.http.ndjson import NdjsonResponse, ndjson_content
from ackbox.http.openapi import add, problem_responses
from ackbox.http.problems import HttpError
from ackbox.http.quarantine_requests import QuarantineAction, QuarantineQuery
from ackbox.http.quarantine_responses import (
    DropLine,
    DropResponse,
    QuarantineDetail,
    QuarantineList,
    ReleaseLine,
    ReleaseResponse,
)
from ackbox.http.routes import Route
from ackbox.model import (
    Caller,
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    ReleaseKind,
    ReleaseProgress,
)
from ackbox.runtime import Runtime

_TAGS: list[str | Enum] = ["quarantine"]
_NOT_FOUND = "No such request in the quarantine."
_PROGRESS = "NDJSON: lines that report the progress; with `dry_run` one line with the counts."
_STAYS = frozenset({ReleaseKind.REFUSED, ReleaseKind.NO_SOURCE})
Number = Annotated[int, Path(ge=1, lt=1 << 62)]


def add_quarantine_routes(api: FastAPI, runtime: Runtime) -> None:
    _add_list(api, runtime)
    _add_detail(api, runtime)
    _add_bulk_actions(api, runtime)
    _add_actions(api, runtime)


def _add_list(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.LIST_QUARANTINE, responses=problem_responses(400, 503), tags=_TAGS)
    async def list_quarantine(query: Annotated[QuarantineQuery, Query()]) -> QuarantineList:
        """List the requests that failed verification, oldest first, in pages."""
        page = await runtime.reader.quarantine.page(
            query.to_filter(), limit=query.limit, cursor=query.quarantine_cursor()
        )
        return QuarantineList.of(page)


def _add_detail(api: FastAPI, runtime: Runtime) -> None:
    async def find(number: int) -> QuarantinedRequest:
        kept = await runtime.reader.quarantine.requests([QuarantineId(number)])
        if not kept:
            raise HttpError(404, _NOT_FOUND)
        return kept[0]

    @add(api, Route.SHOW_QUARANTINED, responses=problem_responses(400, 404, 503), tags=_TAGS)
    async def show_quarantined(quarantine_id: Number) -> QuarantineDetail:
        """Show one request, without the values of headers that may be secret."""
        kept = await find(quarantine_id)
        return QuarantineDetail.of(kept, runtime.sources.secret_headers.get(kept.record.source))

    @add(
        api,
        Route.SHOW_QUARANTINED_BODY,
        response_class=Response,
        responses={**FILE_RESPONSE, **problem_responses(400, 404, 503)},
        tags=_TAGS,
    )
    async def show_quarantined_body(quarantine_id: Number) -> Response:
        """Return the exact bytes of the body, as a file to save."""
        kept = await find(quarantine_id)
        return as_file(f"quarantine-{quarantine_id}", kept.request.body)


def _add_bulk_actions(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.RELEASE_QUARANTINE, **_streams("ReleaseLine"))
    async def release_quarantine(
        action: QuarantineAction, request: Request, actor: Actor = None
    ) -> Response:
        """Verify the selected requests again with the present secrets, and record those that are
        right. The response is NDJSON, and its last line has `done` or `error`. A client that
        disconnects stops the release."""
        where, caller = action.to_filter(), Caller(**find_caller(request, actor))
        return NdjsonResponse(_release(runtime, where, caller, dry_run=action.dry_run))

    @add(api, Route.DROP_QUARANTINE, **_streams("DropLine"))
    async def drop_quarantine(
        action: QuarantineAction, request: Request, actor: Actor = None
    ) -> Response:
        """Delete the selected requests. The response is NDJSON, and its last line has `done` or
        `error`. A client that disconnects stops the drop."""
        where, caller = action.to_filter(), Caller(**find_caller(request, actor))
        return NdjsonResponse(_drop(runtime, where, caller, dry_run=action.dry_run))


def _add_actions(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api, Route.RELEASE_QUARANTINED, responses=problem_responses(400, 404, 409, 503), tags=_TAGS
    )
    async def release_quarantined(
        quarantine_id: Number, request: Request, actor: Actor = None
    ) -> ReleaseResponse:
        """Verify one request again with the present secrets, and record it. 409 if it fails again,
        or if its source is not declared; the request stays then."""
        number, caller = QuarantineId(quarantine_id), Caller(**find_caller(request, actor))
        result = (await runtime.releases.release_ids([number], caller)).get(number)
        if result is None:
            raise HttpError(404, _NOT_FOUND)
        if result.kind in _STAYS:
            raise HttpError(409, result.detail or result.kind)
        event_id = None if result.event_id is None else UUID(result.event_id)
        return ReleaseResponse(id=number, did=result.kind, event_id=event_id)

    @add(api, Route.DROP_QUARANTINED, responses=problem_responses(400, 404, 503), tags=_TAGS)
    async def drop_quarantined(
        quarantine_id: Number, request: Request, actor: Actor = None
    ) -> DropResponse:
        """Delete one request."""
        number, caller = QuarantineId(quarantine_id), Caller(**find_caller(request, actor))
        if not await runtime.drops.drop_ids([number], caller):
            raise HttpError(404, _NOT_FOUND)
        return DropResponse(id=number)


async def _release(
    runtime: Runtime, where: QuarantineFilter, caller: Caller, *, dry_run: bool
) -> AsyncIterator[bytes]:
    progress = ReleaseProgress()
    try:
        if dry_run:
            progress = await runtime.releases.preview(where)
        else:
            async for progress in runtime.releases.release_matching(where, caller):
                yield _line(ReleaseLine.of(progress, done=False))
    except AckboxError as error:
        yield _line(ErrorLine(error=str(error)))
    else:
        yield _line(ReleaseLine.of(progress, done=True))


async def _drop(
    runtime: Runtime, where: QuarantineFilter, caller: Caller, *, dry_run: bool
) -> AsyncIterator[bytes]:
    dropped = 0
    try:
        if dry_run:
            dropped = await runtime.drops.preview(where)
        else:
            async for dropped in runtime.drops.drop_matching(where, caller):
                yield _line(DropLine(dropped=dropped))
    except AckboxError as error:
        yield _line(ErrorLine(error=str(error)))
    else:
        yield _line(DropLine(dropped=dropped, done=True))


def _line(line: BaseModel) -> bytes:
    return line.model_dump_json().encode() + b"\n"


def _streams(line: str) -> dict[str, object]:
    return {
        "response_model": None,
        "response_class": NdjsonResponse,
        "responses": {
            200: {"description": _PROGRESS, "content": ndjson_content(line, "ErrorLine")},
            **problem_responses(400, 503),
        },
        "tags": _TAGS,
    }
