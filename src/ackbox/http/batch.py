"""`POST /webhooks/batch`: NDJSON in, NDJSON out, line for line.

The body is read to its end, within bounds, before anything is recorded: a client that reads the
answer only after sending everything never waits for us while we wait for it. It is then recorded in
groups, and each group is answered when it is durable.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from ackbox.errors import AckboxError, InvalidEvent
from ackbox.http.answers import accepted_line
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.problems import from_error, problem_body
from ackbox.http.requests import Receive, Send, check_headers, check_length, read_body
from ackbox.ingest import Ingest
from ackbox.model import Envelope
from ackbox.runtime import Runtime

_GROUP_LINES = 500
_GROUP_BYTES = 1024 * 1024
_PAUSE_SECONDS = 0.002
_NDJSON = (b"content-type", b"application/x-ndjson")

Parsed = Envelope | bytes
"""What a line became: an envelope, or the problem document that answers it."""


class BatchRoute:
    def __init__(self, runtime: Runtime, envelopes: EnvelopeReader) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._envelopes = envelopes
        self._max_line = settings.max_body_bytes
        # What does not fit into the buffer could never be taken, however often it is sent.
        self._max_batch = min(settings.max_batch_bytes, settings.ingest_buffer_bytes)

    async def post(
        self, headers: dict[bytes, bytes], request_id: str, receive: Receive, send: Send
    ) -> None:
        check_headers(headers)
        check_length(headers, self._max_batch)
        ingest = self._runtime.ingest
        body = await read_body(receive, self._max_batch, ingest)
        try:
            await send(_start(request_id))
            async for answer in self._record(ingest, body, request_id):
                await send({"type": "http.response.body", "body": answer, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            ingest.give_back_bytes(len(body))

    async def _record(self, ingest: Ingest, body: bytes, request_id: str) -> AsyncIterator[bytes]:
        for group in _groups(body):
            parsed = [self._parse(line, request_id) for line in group]
            envelopes = [p for p in parsed if isinstance(p, Envelope)]
            answers = iter(await _accept(ingest, envelopes))
            yield b"".join(
                [(next(answers) if isinstance(p, Envelope) else p) + b"\n" for p in parsed]
            )
            if not envelopes:
                # Nothing was waited for: a million bad lines would leave no time for the others,
                # least of all for the writer thread, which needs the interpreter too.
                await asyncio.sleep(_PAUSE_SECONDS)

    def _parse(self, line: bytes, request_id: str) -> Parsed:
        if len(line) > self._max_line:
            return problem_body(413, f"The line is longer than {self._max_line} bytes.")
        try:
            return self._envelopes.read(line, None, request_id)
        except InvalidEvent as error:
            return problem_body(400, str(error))


def _groups(body: bytes) -> Iterator[list[bytes]]:
    """Lines in groups small enough to be parsed in one go."""
    group: list[bytes] = []
    size = 0
    for line in _lines(body):
        group.append(line)
        size += len(line)
        if len(group) == _GROUP_LINES or size > _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _lines(body: bytes) -> Iterator[bytes]:
    """One at a time: a list of millions of short lines would take many times their room."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield body[start:end].removesuffix(b"\r")
        start = end + 1


async def _accept(ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
    """As many as there is room for; the rest are told to come again."""
    room = ingest.room
    taken, refused = envelopes[:room], envelopes[room:]
    answers = await _accept_all(ingest, taken) if taken else []
    full = problem_body(429, "Too many events wait already; send this line again soon.")
    return [*answers, *[full] * len(refused)]


async def _accept_all(ingest: Ingest, envelopes: Sequence[Envelope]) -> list[bytes]:
    try:
        receipts = await ingest.accept_many(envelopes)
    except AckboxError as error:
        problem = from_error(error)
        return [problem_body(problem.status, str(problem))] * len(envelopes)
    return [accepted_line(e, r) for e, r in zip(envelopes, receipts, strict=True)]


def _start(request_id: str) -> dict[str, object]:
    headers = [_NDJSON, (b"x-request-id", request_id.encode())]
    return {"type": "http.response.start", "status": 200, "headers": headers}
