"""`POST /webhooks/batch`: NDJSON in, NDJSON out, line for line.

The body is read to its end, within bounds, before anything is recorded: a client that reads the
answer only after sending everything never waits for us while we wait for it. It is then recorded in
groups. Each group is answered when it is durable, and its bytes are given back. The work stops when
the client has left, or has sent too many lines, or too many that are not valid.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice

from ackbox.errors import AckboxError, InvalidEvent
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.guard import told_to_strangers
from ackbox.http.lines import Lines
from ackbox.http.problems import problem_body
from ackbox.http.requests import (
    Receive,
    Send,
    check_headers,
    check_length,
    read_pieces,
    watched,
)
from ackbox.http.responses import accepted_line
from ackbox.ingest import Ingest
from ackbox.model import Envelope
from ackbox.runtime import Runtime

MAX_BAD_LINES = 1000
_GROUP_LINES = 500
_GROUP_BYTES = 1024 * 1024
_PAUSE_SECONDS = 0.002
_NDJSON = (b"content-type", b"application/x-ndjson")

Parsed = Envelope | bytes
"""What a line became: an envelope, or the problem document that answers it."""

_TOO_MANY_LINES = (
    "A batch may have {} lines (MAX_BATCH_LINES). The lines after them were not read: send them in "
    "another batch."
)
_TOO_MANY_BAD_LINES = (
    f"{MAX_BAD_LINES} lines or more are not valid. The lines after these were not read: correct "
    "the batch and send it again."
)


class BatchRoute:
    def __init__(self, runtime: Runtime, envelopes: EnvelopeReader) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._envelopes = envelopes
        self._max_line = settings.max_body_bytes
        self._max_lines = settings.max_batch_lines
        # What does not fit into the buffer could never be taken, however often it is sent.
        self._max_batch = min(settings.max_batch_bytes, settings.ingest_buffer_bytes)

    async def post(
        self, headers: dict[bytes, bytes], request_id: str, receive: Receive, send: Send
    ) -> None:
        check_headers(headers)
        check_length(headers, self._max_batch)
        ingest = self._runtime.ingest
        lines = Lines(await read_pieces(receive, self._max_batch, ingest.bytes), self._max_line)
        try:
            await send(_start(request_id))
            answers = self._record(ingest, lines, request_id)
            async with watched(receive) as has_left, aclosing(answers):
                async for answer in answers:
                    await send({"type": "http.response.body", "body": answer, "more_body": True})
                    ingest.bytes.release(lines.let_go())
                    if has_left():
                        return
            await send({"type": "http.response.body", "body": b""})
        finally:
            ingest.bytes.release(lines.held)

    async def _record(
        self, ingest: Ingest, lines: Lines, request_id: str
    ) -> AsyncGenerator[bytes, None]:
        """The answers to one group after the other."""
        left, bad = self._max_lines, 0
        for group in _groups(lines):
            parsed = [self._parse(line, request_id) for line in islice(group, left)]
            envelopes = [p for p in parsed if isinstance(p, Envelope)]
            answers = iter(await self._accept(ingest, envelopes))
            said = [next(answers) if isinstance(p, Envelope) else p for p in parsed]
            left -= len(group)
            bad += len(parsed) - len(envelopes)
            stop = self._reason_to_stop(left, bad)
            yield b"".join([line + b"\n" for line in (*said, *stop)])
            if stop:
                return
            if not envelopes:
                # Nothing was waited for: bad lines would leave no time for the others, least of
                # all for the writer thread, which needs the interpreter too.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _accept(self, ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
        """As many as there is room for; the rest are told to come again."""
        room = ingest.capacity
        taken, refused = envelopes[:room], envelopes[room:]
        answers = await self._accept_all(ingest, taken) if taken else []
        full = problem_body(429, "Too many events wait already; send this line again soon.")
        return [*answers, *[full] * len(refused)]

    async def _accept_all(self, ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
        try:
            receipts = await ingest.accept_many(envelopes)
        except AckboxError as error:
            problem = told_to_strangers(error, self._runtime)
            return [problem_body(problem.status, str(problem))] * len(envelopes)
        return [accepted_line(e, r) for e, r in zip(envelopes, receipts, strict=True)]

    def _reason_to_stop(self, left: int, bad: int) -> tuple[bytes, ...]:
        """The problem that ends the answer, if any."""
        if left < 0:
            return (problem_body(413, _TOO_MANY_LINES.format(self._max_lines)),)
        if bad >= MAX_BAD_LINES:
            return (problem_body(400, _TOO_MANY_BAD_LINES),)
        return ()

    def _parse(self, line: bytes, request_id: str) -> Parsed:
        if len(line) > self._max_line:
            return problem_body(413, f"The line is longer than {self._max_line} bytes.")
        try:
            return self._envelopes.read(line, None, request_id)
        except InvalidEvent as error:
            return problem_body(400, str(error))


def _groups(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines in groups small enough to be parsed in one go."""
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
