"""`POST /webhooks/batch`: NDJSON in, NDJSON out, line for line.

The body is read to its end, within bounds, before anything is recorded: a client that reads the
answer only after sending everything never waits for us while we wait for it. It is then recorded in
groups, and each group is answered when it is durable.
"""

from collections.abc import AsyncIterator, Sequence
from itertools import islice

from ackbox.errors import AckboxError, InvalidEvent
from ackbox.http.answers import accepted_line
from ackbox.http.envelopes import EnvelopeReader
from ackbox.http.problems import from_error, problem_body
from ackbox.http.requests import (
    Receive,
    Send,
    announced_length,
    body_chunks,
    check_headers,
    too_large,
)
from ackbox.ingest import Ingest
from ackbox.model import Envelope
from ackbox.runtime import Runtime

_GROUP = 500
_NDJSON = (b"content-type", b"application/x-ndjson")

Parsed = Envelope | bytes
"""What a line became: an envelope, or the problem document that answers it."""


class BatchRoute:
    def __init__(self, runtime: Runtime, envelopes: EnvelopeReader) -> None:
        self._runtime = runtime
        self._envelopes = envelopes
        self._max_line = runtime.settings.max_body_bytes
        self._max_batch = runtime.settings.max_batch_bytes

    async def post(
        self, headers: dict[bytes, bytes], request_id: str, receive: Receive, send: Send
    ) -> int:
        check_headers(headers)
        ingest = self._runtime.ingest
        length = announced_length(headers, self._max_batch)
        held = self._max_batch if length is None else length
        ingest.hold_bytes(held)
        try:
            lines = await self._read(receive)
            await send(_start(request_id))
            async for answer in self._record(ingest, lines, request_id):
                await send({"type": "http.response.body", "body": answer, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            ingest.give_back_bytes(held)
        return 200

    async def _read(self, receive: Receive) -> list[bytes | None]:
        lines = Lines(self._max_line)
        size = 0
        async for chunk in body_chunks(receive, await receive()):
            size += len(chunk)
            if size > self._max_batch:
                raise too_large(self._max_batch)
            lines.feed(chunk)
        return lines.close()

    async def _record(
        self, ingest: Ingest, lines: Sequence[bytes | None], request_id: str
    ) -> AsyncIterator[bytes]:
        remaining = iter(lines)
        while group := list(islice(remaining, _GROUP)):
            parsed = [self._parse(line, request_id) for line in group]
            answers = iter(await _accept(ingest, [p for p in parsed if isinstance(p, Envelope)]))
            yield b"".join(
                [(next(answers) if isinstance(p, Envelope) else p) + b"\n" for p in parsed]
            )

    def _parse(self, line: bytes | None, request_id: str) -> Parsed:
        if line is None:
            return problem_body(413, f"The line is longer than {self._max_line} bytes.")
        try:
            return self._envelopes.read(line, None, request_id)
        except InvalidEvent as error:
            return problem_body(400, str(error))


class Lines:
    """Splits a stream at newlines; a line over the limit becomes None and is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: list[bytes | None] = []
        self._rest = bytearray()
        self._over = False

    def feed(self, chunk: bytes) -> None:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._grow(part)
            self._end_line()
        self._grow(rest)

    def close(self) -> list[bytes | None]:
        if self._rest or self._over:
            self._end_line()
        return self._lines

    def _grow(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._limit + 1:  # a carriage return does not count
            self._over = True
            self._rest.clear()

    def _end_line(self) -> None:
        line = bytes(self._rest.removesuffix(b"\r"))
        self._lines.append(None if self._over or len(line) > self._limit else line)
        self._rest.clear()
        self._over = False


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
