"""Refused requests as facts, for the log (N15)."""

from collections.abc import Sequence

from ackbox.telemetry import Observer, RequestRefused

REASON = "ackbox.reason"
"""Where a route leaves in the scope why it refuses, in words that repeat nothing of the request."""
_EXPECTED = frozenset({404, 409, 429})
"""Responses of ordinary use: no such event, a run in progress, back-pressure."""
_NAMES_INPUT = " unknown field"


def note_refusal(
    observe: Observer, status: int, reason: str, request_id: str, client: Sequence[object] | None
) -> None:
    """Report a request that was refused; other responses are none of this."""
    if not 400 <= status < 500 or status in _EXPECTED:
        return
    peer = str(client[0]) if client else None
    observe(RequestRefused(status, _without_input(reason), request_id, peer))


def _without_input(reason: str) -> str:
    """Leave out the name of an unknown field: the sender wrote it."""
    told, found, _ = reason.partition(_NAMES_INPUT)
    return told + found
