"""`POST /webhooks/batch`: NDJSON in, NDJSON out, line for line.

The whole body is read, within limits, before anything is recorded. Otherwise a client that reads
the response only after sending everything would deadlock with the server. The lines are then
recorded in groups. When a group is durable, its part of the response is sent and its bytes are
released. The work stops when the client disconnects, or when the batch has too many lines or too
many invalid lines.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice

from ackbox.byte_buffer import Reservation
from ackbox.errors import AckboxError, InvalidEvent
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.guard import redact_error
from ackbox.http.lines import Lines
from ackbox.http.problems import problem_body
from ackbox.http.requests import (
    Receive,
    Scope,
    Send,
    check_headers,
    detect_disconnect,
    read_pieces,
)
from ackbox.http.responses import accepted_line
from ackbox.ingest import Ingest
from ackbox.model import Envelope, Submission
from ackbox.runtime import Runtime

MAX_INVALID_LINES = 1000
_GROUP_LINES = 500
_GROUP_BYTES = 1024 * 1024
_PAUSE_SECONDS = 0.002
_NDJSON = (b"content-type", b"application/x-ndjson")

Parsed = Envelope | bytes
"""The result of parsing a line: an envelope, or the problem document to respond with."""

_TOO_MANY_LINES = (
    "A batch may have {} lines (MAX_BATCH_LINES). The lines after them were not read: send them in "
    "another batch."
)
_TOO_MANY_INVALID_LINES = (
    f"{MAX_INVALID_LINES} lines or more are not valid. The lines after these were not read: "
    "correct the batch and send it again."
)


class BatchRoute:
    def __init__(self, runtime: Runtime, envelopes: EnvelopeReader) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._envelopes = envelopes
        self._max_line = settings.max_body_bytes
        self._max_lines = settings.max_batch_lines
        # A batch larger than the buffer could never be accepted, however often it is sent.
        self._max_batch = min(settings.max_batch_bytes, settings.ingest_buffer_bytes)

    async def post(
        self,
        _scope: Scope,
        headers: dict[bytes, bytes],
        request_id: str,
        receive: Receive,
        send: Send,
    ) -> None:
        check_headers(headers, self._max_batch)
        ingest = self._runtime.ingest
        with Reservation(ingest.bytes) as reservation:
            pieces = await read_pieces(receive, self._max_batch, reservation)
            lines = Lines(pieces, self._max_line)
            await send(_start(request_id))
            chunks = self._record(ingest, lines, request_id)
            async with detect_disconnect(receive) as is_disconnected, aclosing(chunks):
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    reservation.release(lines.take_used())
                    if is_disconnected():
                        return
            await send({"type": "http.response.body", "body": b""})

    async def _record(
        self, ingest: Ingest, lines: Lines, request_id: str
    ) -> AsyncGenerator[bytes, None]:
        """Record the lines group by group, and yield the response lines of each group."""
        remaining, invalid = self._max_lines, 0
        for group in _groups(lines):
            parsed = [self._parse(line, request_id) for line in islice(group, remaining)]
            envelopes = [p for p in parsed if isinstance(p, Envelope)]
            results = iter(await self._accept(ingest, envelopes))
            responses = [next(results) if isinstance(p, Envelope) else p for p in parsed]
            remaining -= len(group)
            invalid += len(parsed) - len(envelopes)
            final_problem = self._final_problem(remaining, invalid)
            yield b"".join([line + b"\n" for line in (*responses, *final_problem)])
            if final_problem:
                return
            if not envelopes:
                # This group awaited nothing. A batch of invalid lines would starve other requests,
                # and above all the writer thread, which needs the interpreter too.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _accept(self, ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
        """Accept as many envelopes as there is room for, and respond 429 to the rest."""
        capacity = ingest.capacity
        accepted, refused = envelopes[:capacity], envelopes[capacity:]
        results = await self._accept_all(ingest, accepted) if accepted else []
        full = problem_body(429, "Too many events wait already; send this line again soon.")
        return [*results, *[full] * len(refused)]

    async def _accept_all(self, ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
        try:
            receipts = await ingest.submit(Submission(envelopes))
        except AckboxError as error:
            problem = redact_error(error, self._runtime)
            return [problem_body(problem.status, str(problem))] * len(envelopes)
        return [accepted_line(e, r) for e, r in zip(envelopes, receipts, strict=True)]

    def _final_problem(self, remaining: int, invalid: int) -> tuple[bytes, ...]:
        """Return the problem that ends the response early, if any."""
        if remaining < 0:
            return (problem_body(413, _TOO_MANY_LINES.format(self._max_lines)),)
        if invalid >= MAX_INVALID_LINES:
            return (problem_body(400, _TOO_MANY_INVALID_LINES),)
        return ()

    def _parse(self, line: bytes, request_id: str) -> Parsed:
        if len(line) > self._max_line:
            return problem_body(413, f"The line is longer than {self._max_line} bytes.")
        try:
            return self._envelopes.read(line, None, request_id)
        except InvalidEvent as error:
            return problem_body(400, str(error))


def _groups(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines in groups that are small enough to be parsed without a pause."""
    group: list[bytes] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if len(group) == _GROUP_LINES or size > _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _start(request_id: str) -> dict[str, object]:
    headers = [_NDJSON, (b"x-request-id", request_id.encode())]
    return {"type": "http.response.start", "status": 200, "headers": headers}
