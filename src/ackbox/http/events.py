"""The operator's routes: look at events, replay or discard them, see what was done (L11, N14)."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Annotated, TypedDict
from uuid import UUID

import msgspec
from fastapi import FastAPI, Header, Query
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ackbox.errors import AckboxError
from ackbox.http.event_responses import (
    AuditResponse,
    DiscardResponse,
    EventDetailResponse,
    EventList,
    PreviewResponse,
    ReplayResponse,
    StatsResponse,
)
from ackbox.http.ndjson import NDJSON, NdjsonResponse, ndjson_content
from ackbox.http.openapi import problem_responses
from ackbox.http.problems import HttpError
from ackbox.http.request_models import (
    AuditQuery,
    DiscardRequest,
    ListQuery,
    ReplayOneRequest,
    ReplayRequest,
)
from ackbox.http.requests import watched
from ackbox.maintenance import ReplayProgress, preview
from ackbox.model import NAME_LIMIT, DiscardKind, EventFilter, EventId, Order, ReplayKind
from ackbox.runtime import Runtime

_TAGS: list[str | Enum] = ["events"]
_NO_SUCH = "No such event."
_RUNNING = "The event is being processed; try again when its run has ended."
_COMPLETED = 'The event is completed. To run it again as a whole, send {"completed": true}.'
_LEFT = "The connection was closed, or your side of it, before the count was complete."
_PROGRESS = "NDJSON: with `dry_run` one line that counts; else lines that say how far it is."
_PROGRESS_LINES = ndjson_content("PreviewResponse", "ProgressLine", "ErrorLine")
Actor = Annotated[
    str | None,
    Header(
        alias="Ackbox-Actor",
        min_length=1,
        max_length=NAME_LIMIT,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="Who does this, as the audit names them beside the address they call from.",
    ),
]


def add_event_routes(api: FastAPI, runtime: Runtime) -> None:
    _add_lists(api, runtime)
    _add_one(api, runtime)
    _add_replays(api, runtime)
    _add_replay_of_one(api, runtime)
    _add_discards(api, runtime)
    _add_discard_of_one(api, runtime)
    _add_overviews(api, runtime)


def _add_lists(api: FastAPI, runtime: Runtime) -> None:
    @api.get("/api/events", responses=problem_responses(400, 503), tags=_TAGS)
    async def list_events(asked: Annotated[ListQuery, Query()]) -> EventList:
        """Events by filter, in pages. A page may hold fewer than `limit`, even none, and still
        have a `next`: a rare filter is looked for a bounded number of rows at a time."""
        where = asked.where()
        if asked.order == "source":
            source_page = await runtime.reader.events_of_source(
                where, limit=asked.limit, cursor=asked.place()
            )
            return EventList.of_source(source_page)
        page = await runtime.reader.events(
            where, order=Order(asked.order), limit=asked.limit, cursor=asked.position()
        )
        return EventList.of(page)


def _add_one(api: FastAPI, runtime: Runtime) -> None:
    @api.get("/api/events/replay", include_in_schema=False)
    @api.get("/api/events/discard", include_in_schema=False)
    async def no_order_to_get() -> None:
        """Or `replay` and `discard` would be taken for the id of an event."""
        raise HTTPException(405)

    @api.get("/api/events/{event_id}", responses=problem_responses(400, 404, 503), tags=_TAGS)
    async def show_event(event_id: UUID) -> EventDetailResponse:
        """All of one event but its payload: its runs and errors, who holds it, what it waits for,
        what operators did to it."""
        detail = await runtime.reader.detail(EventId(str(event_id)))
        if detail is None:
            raise HttpError(404, _NO_SUCH)
        return EventDetailResponse.of(detail)

    @api.get(
        "/api/events/{event_id}/payload",
        response_class=Response,
        responses={
            200: {
                "description": "The exact bytes, as a file.",
                "content": {"text/plain": {}, "application/octet-stream": {}},
            },
            **problem_responses(400, 404, 503),
        },
        tags=_TAGS,
    )
    async def show_payload(event_id: UUID) -> Response:
        """The exact bytes, to be saved and never to be shown as a page."""
        payload = await runtime.reader.payload(EventId(str(event_id)))
        if payload is None:
            raise HttpError(404, _NO_SUCH)
        return _as_file(str(event_id), payload)


def _add_replays(api: FastAPI, runtime: Runtime) -> None:
    @api.post(
        "/api/events/replay",
        response_model=None,
        response_class=NdjsonResponse,
        responses={
            200: {"description": _PROGRESS, "content": _PROGRESS_LINES},
            **problem_responses(400, 408, 503),
        },
        tags=_TAGS,
    )
    async def replay_events(
        order: ReplayRequest, request: Request, actor: Actor = None
    ) -> Response:
        """Replay what a filter finds, oldest first, `rate` a second; `dry_run` only counts. The
        answer is NDJSON, and its last line has `done` or `error`. Who breaks off stops it."""
        where = order.where()
        if order.dry_run:
            return await _preview(runtime, where, request)
        steps = runtime.replays.replay_matching(where, **_caller(request, actor), rate=order.rate)
        return NdjsonResponse(_lines(steps))


def _add_replay_of_one(api: FastAPI, runtime: Runtime) -> None:
    @api.post(
        "/api/events/{event_id}/replay",
        responses=problem_responses(400, 404, 409, 503),
        tags=_TAGS,
    )
    async def replay_event(
        event_id: UUID, request: Request, order: ReplayOneRequest | None = None, actor: Actor = None
    ) -> ReplayResponse:
        """Give one event a new run: a dead letter starts anew, one that waits for a retry or is
        held becomes due. One that runs is left alone, and so is a completed one unless
        `completed` asks for it: 409."""
        wanted = EventId(str(event_id))
        done = await runtime.replays.replay_ids(
            [wanted],
            **_caller(request, actor),
            completed=order is not None and order.completed,
        )
        match done.get(wanted):
            case None:
                raise HttpError(404, _NO_SUCH)
            case ReplayKind.RUNNING:
                raise HttpError(409, _RUNNING)
            case ReplayKind.COMPLETED:
                raise HttpError(409, _COMPLETED)
            case kind:
                return ReplayResponse(id=event_id, did=kind)


def _add_discards(api: FastAPI, runtime: Runtime) -> None:
    @api.post(
        "/api/events/discard",
        response_model=None,
        response_class=NdjsonResponse,
        responses={
            200: {"description": _PROGRESS, "content": _PROGRESS_LINES},
            **problem_responses(400, 408, 503),
        },
        tags=_TAGS,
    )
    async def discard_events(
        order: DiscardRequest, request: Request, actor: Actor = None
    ) -> Response:
        """Discard what a filter finds, oldest first, `rate` a second; `dry_run` only counts. The
        response is NDJSON, and its last line has `done` or `error`. A client that disconnects
        stops the discard."""
        where = order.where()
        if order.dry_run:
            return await _preview(runtime, where, request)
        who = _caller(request, actor)
        steps = runtime.discards.discard_matching(where, **who, rate=order.rate)
        return NdjsonResponse(_lines(steps))


def _add_discard_of_one(api: FastAPI, runtime: Runtime) -> None:
    @api.post(
        "/api/events/{event_id}/discard",
        responses=problem_responses(400, 404, 409, 503),
        tags=_TAGS,
    )
    async def discard_event(
        event_id: UUID, request: Request, actor: Actor = None
    ) -> DiscardResponse:
        """Give one event up on purpose: it is completed, with outcome `discarded`. An event that
        is completed already stays as it is. An event that runs is left alone: 409."""
        wanted = EventId(str(event_id))
        done = await runtime.discards.discard_ids([wanted], **_caller(request, actor))
        match done.get(wanted):
            case None:
                raise HttpError(404, _NO_SUCH)
            case DiscardKind.RUNNING:
                raise HttpError(409, _RUNNING)
            case kind:
                return DiscardResponse(id=event_id, did=kind)


def _add_overviews(api: FastAPI, runtime: Runtime) -> None:
    @api.get("/api/stats", responses=problem_responses(503), tags=_TAGS)
    async def stats() -> StatsResponse:
        """How many events stand in each status, and how long the oldest pending one has waited."""
        return StatsResponse.of(await runtime.reader.stats(), runtime.clock())

    @api.get("/api/audit", responses=problem_responses(400, 503), tags=_TAGS)
    async def audit(asked: Annotated[AuditQuery, Query()]) -> AuditResponse:
        """What operators did, newest first."""
        event_id = EventId(str(asked.event_id)) if asked.event_id else None
        page = await runtime.reader.audit(
            event_id=event_id, limit=asked.limit, cursor=asked.position()
        )
        return AuditResponse.of(page)


async def _preview(runtime: Runtime, where: EventFilter, request: Request) -> Response:
    """Count what the filter finds, unless the client leaves. It may only have ended its side, and
    must not take a part of the count for the whole."""
    async with watched(request.receive) as has_left:
        found = await preview(runtime.reader, where, runtime.clock(), is_abandoned=has_left)
        if has_left():
            raise HttpError(408, _LEFT)
    return Response(PreviewResponse.of(found).model_dump_json() + "\n", media_type=NDJSON)


async def _lines(steps: AsyncIterator[ReplayProgress]) -> AsyncIterator[bytes]:
    progress = ReplayProgress(0, 0)
    try:
        async for progress in steps:
            yield msgspec.json.encode(progress) + b"\n"
    except AckboxError as error:
        yield msgspec.json.encode({"error": str(error)}) + b"\n"
    else:
        last = {"seen": progress.seen, "moved": progress.moved, "done": True}
        yield msgspec.json.encode(last) + b"\n"


def _as_file(name: str, payload: bytes) -> Response:
    """A browser saves it: whatever a sender wrote, it is never a page of ours (F49)."""
    try:
        payload.decode()
        ending, kind = "txt", "text/plain; charset=utf-8"
    except UnicodeDecodeError:
        ending, kind = "bin", "application/octet-stream"
    headers = {
        "content-disposition": f'attachment; filename="{name}.{ending}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(payload, headers=headers, media_type=kind)


class Caller(TypedDict):
    """For the audit: who the caller says it is, and the address that it called from."""

    actor: str
    peer: str | None


def _caller(request: Request, given: str | None) -> Caller:
    return Caller(actor=given or "http", peer=request.client.host if request.client else None)
