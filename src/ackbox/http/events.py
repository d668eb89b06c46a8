"""The operator routes: list, show, replay and discard events; statistics; audit (L11, N14)."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
from fastapi import FastAPI, Header, Query
from fastapi.responses import Response
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
from ackbox.http.openapi import add, problem_responses
from ackbox.http.problems import HttpError
from ackbox.http.request_models import (
    AuditQuery,
    DiscardRequest,
    ListQuery,
    ReplayOneRequest,
    ReplayRequest,
)
from ackbox.http.requests import detect_disconnect
from ackbox.http.routes import Route
from ackbox.maintenance import ReplayProgress, preview
from ackbox.model import NAME_LIMIT, DiscardKind, EventFilter, EventId, Order, ReplayKind
from ackbox.runtime import Runtime

_TAGS: list[str | Enum] = ["events"]
_NOT_FOUND = "No such event."
_RUNNING = "The event is being processed; try again when its run has ended."
_COMPLETED = 'The event is completed. To run it again as a whole, send {"completed": true}.'
_SPLIT = "The event is a delivery. Replay the events that were made from its items instead."
_DISCONNECTED = "The connection, or your side of it, was closed before the count was complete."
_PROGRESS = "NDJSON: with `dry_run` one line with the counts; else lines that report the progress."
_PROGRESS_LINES = ndjson_content("PreviewResponse", "ProgressLine", "ErrorLine")
FILE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The exact bytes, as a file.",
        "content": {"text/plain": {}, "application/octet-stream": {}},
    }
}
"""How the OpenAPI document describes the responses of `as_file`."""
Actor = Annotated[
    str | None,
    Header(
        alias="Ackbox-Actor",
        min_length=1,
        max_length=NAME_LIMIT,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="The name that the audit records for the caller, beside the caller's address.",
    ),
]


def add_event_routes(api: FastAPI, runtime: Runtime) -> None:
    _add_list(api, runtime)
    _add_detail(api, runtime)
    _add_replay_by_filter(api, runtime)
    _add_replay_by_id(api, runtime)
    _add_discard_by_filter(api, runtime)
    _add_discard_by_id(api, runtime)
    _add_stats_and_audit(api, runtime)


def _add_list(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.LIST_EVENTS, responses=problem_responses(400, 503), tags=_TAGS)
    async def list_events(query: Annotated[ListQuery, Query()]) -> EventList:
        """List events by filter, in pages. A page may hold fewer than `limit` events, even none,
        and still have a `next`: each page reads a bounded number of rows."""
        where = query.to_filter()
        if query.order == "source":
            source_page = await runtime.reader.events_of_source(
                where, limit=query.limit, cursor=query.source_cursor()
            )
            return EventList.of_source(source_page)
        page = await runtime.reader.events(
            where, order=Order(query.order), limit=query.limit, cursor=query.ledger_cursor()
        )
        return EventList.of(page)


def _add_detail(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.SHOW_EVENT, responses=problem_responses(400, 404, 503), tags=_TAGS)
    async def show_event(event_id: UUID) -> EventDetailResponse:
        """Show everything about one event except its payload: its runs and errors, the worker that
        holds its claim, the event that it waits for, and what operators did to it."""
        detail = await runtime.reader.detail(EventId(str(event_id)))
        if detail is None:
            raise HttpError(404, _NOT_FOUND)
        return EventDetailResponse.of(detail)

    @add(
        api,
        Route.SHOW_PAYLOAD,
        response_class=Response,
        responses={**FILE_RESPONSE, **problem_responses(400, 404, 503)},
        tags=_TAGS,
    )
    async def show_payload(event_id: UUID) -> Response:
        """Return the exact bytes, as a file to save: a browser never shows them as a page."""
        content = await runtime.reader.content(EventId(str(event_id)))
        if content is None:
            raise HttpError(404, _NOT_FOUND)
        return as_file(str(event_id), content.payload)


def _add_replay_by_filter(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api,
        Route.REPLAY_EVENTS,
        response_model=None,
        response_class=NdjsonResponse,
        responses={
            200: {"description": _PROGRESS, "content": _PROGRESS_LINES},
            **problem_responses(400, 408, 503),
        },
        tags=_TAGS,
    )
    async def replay_events(
        replay_request: ReplayRequest, request: Request, actor: Actor = None
    ) -> Response:
        """Replay the events that match a filter, oldest first, at most `rate` per second; `dry_run`
        only counts them. The response is NDJSON, and its last line has `done` or `error`. A client
        that disconnects stops the replay."""
        where = replay_request.to_filter()
        if replay_request.dry_run:
            return await _preview(runtime, where, request)
        steps = runtime.replays.replay_matching(
            where, **find_caller(request, actor), rate=replay_request.rate
        )
        return NdjsonResponse(_progress_lines(steps))


def _add_replay_by_id(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api,
        Route.REPLAY_EVENT,
        responses=problem_responses(400, 404, 409, 503),
        tags=_TAGS,
    )
    async def replay_event(
        event_id: UUID,
        request: Request,
        replay_request: ReplayOneRequest | None = None,
        actor: Actor = None,
    ) -> ReplayResponse:
        """Give one event a new run. A dead letter gets all of its attempts again; an event that is
        parked or waits for a retry becomes due. 409 if the event is being processed, if it is
        completed and `completed` is not set, or if it is a delivery whose items are events."""
        target = EventId(str(event_id))
        results = await runtime.replays.replay_ids(
            [target],
            **find_caller(request, actor),
            completed=replay_request is not None and replay_request.completed,
        )
        match results.get(target):
            case None:
                raise HttpError(404, _NOT_FOUND)
            case ReplayKind.RUNNING:
                raise HttpError(409, _RUNNING)
            case ReplayKind.COMPLETED:
                raise HttpError(409, _COMPLETED)
            case ReplayKind.SPLIT:
                raise HttpError(409, _SPLIT)
            case kind:
                return ReplayResponse(id=event_id, did=kind)


def _add_discard_by_filter(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api,
        Route.DISCARD_EVENTS,
        response_model=None,
        response_class=NdjsonResponse,
        responses={
            200: {"description": _PROGRESS, "content": _PROGRESS_LINES},
            **problem_responses(400, 408, 503),
        },
        tags=_TAGS,
    )
    async def discard_events(
        discard_request: DiscardRequest, request: Request, actor: Actor = None
    ) -> Response:
        """Discard the events that match a filter, oldest first, at most `rate` per second;
        `dry_run` only counts them. The response is NDJSON, and its last line has `done` or `error`.
        A client that disconnects stops the discard."""
        where = discard_request.to_filter()
        if discard_request.dry_run:
            return await _preview(runtime, where, request)
        steps = runtime.discards.discard_matching(
            where, **find_caller(request, actor), rate=discard_request.rate
        )
        return NdjsonResponse(_progress_lines(steps))


def _add_discard_by_id(api: FastAPI, runtime: Runtime) -> None:
    @add(
        api,
        Route.DISCARD_EVENT,
        responses=problem_responses(400, 404, 409, 503),
        tags=_TAGS,
    )
    async def discard_event(
        event_id: UUID, request: Request, actor: Actor = None
    ) -> DiscardResponse:
        """Give up one event on purpose: it becomes completed, with outcome `discarded`. A completed
        event stays as it is. 409 if the event is being processed."""
        target = EventId(str(event_id))
        results = await runtime.discards.discard_ids([target], **find_caller(request, actor))
        match results.get(target):
            case None:
                raise HttpError(404, _NOT_FOUND)
            case DiscardKind.RUNNING:
                raise HttpError(409, _RUNNING)
            case kind:
                return DiscardResponse(id=event_id, did=kind)


def _add_stats_and_audit(api: FastAPI, runtime: Runtime) -> None:
    @add(api, Route.STATS, responses=problem_responses(503), tags=_TAGS)
    async def stats() -> StatsResponse:
        """Count the events by status, and report how long the oldest pending event has waited."""
        now = runtime.clock()
        return StatsResponse.of(await runtime.reader.stats(now), now)

    @add(api, Route.AUDIT, responses=problem_responses(400, 503), tags=_TAGS)
    async def audit(query: Annotated[AuditQuery, Query()]) -> AuditResponse:
        """List the actions of operators, newest first."""
        event_id = EventId(str(query.event_id)) if query.event_id else None
        page = await runtime.reader.audit(
            event_id=event_id, limit=query.limit, cursor=query.audit_cursor()
        )
        return AuditResponse.of(page)


async def _preview(runtime: Runtime, where: EventFilter, request: Request) -> Response:
    """Count the events that match the filter, unless the client disconnects. A client that only
    ended its side still reads the response: it gets 408, not an incomplete count."""
    async with detect_disconnect(request.receive) as is_disconnected:
        counts = await preview(runtime.reader, where, runtime.clock(), is_abandoned=is_disconnected)
        if is_disconnected():
            raise HttpError(408, _DISCONNECTED)
    return Response(PreviewResponse.of(counts).model_dump_json() + "\n", media_type=NDJSON)


async def _progress_lines(steps: AsyncIterator[ReplayProgress]) -> AsyncIterator[bytes]:
    progress = ReplayProgress(0, 0)
    try:
        async for progress in steps:
            yield msgspec.json.encode(progress) + b"\n"
    except AckboxError as error:
        yield msgspec.json.encode({"error": str(error)}) + b"\n"
    else:
        last = {"seen": progress.seen, "changed": progress.changed, "done": True}
        yield msgspec.json.encode(last) + b"\n"


def as_file(name: str, payload: bytes) -> Response:
    """Return the payload as an attachment: a browser saves it and never runs it as a page of this
    origin, whatever the sender wrote (F49)."""
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
    """The caller as the audit records it: the name that it gave, and its address."""

    actor: str
    peer: str | None


def find_caller(request: Request, actor: str | None) -> Caller:
    return Caller(actor=actor or "http", peer=request.client.host if request.client else None)
