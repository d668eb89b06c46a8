"""Errors as RFC 9457 problem documents."""

from http import HTTPStatus

import msgspec

from ackbox.errors import AckboxError, InvalidEvent, NotStored, OutcomeUnknown, Overloaded

CONTENT_TYPE = b"application/problem+json"
STATUSES = frozenset(
    {200, 202, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 417, 429, 431, 500, 501, 503}
)
"""Every status that this server sends. Metrics have a counter for each from the start (C3)."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None


class HttpError(Exception):
    """Ends a request with a problem document."""

    def __init__(
        self, status: int, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers


def problem_body(status: int, detail: str, request_id: str | None = None) -> bytes:
    title = HTTPStatus(status).phrase
    return msgspec.json.encode(Problem("about:blank", title, status, detail, request_id))


def from_error(error: AckboxError) -> HttpError:
    """Return the HTTP error that an error of ackbox becomes."""
    match error:
        case InvalidEvent():
            return HttpError(400, str(error))
        case Overloaded():
            return HttpError(429, str(error), _retry_after(error))
        case NotStored() | OutcomeUnknown():
            return HttpError(503, str(error), _retry_after(error))
        case _:
            return HttpError(503, str(error), ((b"retry-after", b"5"),))


def _retry_after(error: NotStored | OutcomeUnknown) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"retry-after", b"%d" % error.retry_after),)
