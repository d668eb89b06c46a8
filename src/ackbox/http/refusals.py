"""Report refused requests as facts, for the log (N15)."""

from collections.abc import Sequence

from ackbox.telemetry import Observer, RequestRefused

REASON = "ackbox.reason"
"""The key in the scope under which a route stores the reason of a refusal. The reason repeats
nothing from the request."""
_EXPECTED = frozenset({404, 409, 429})
"""Responses of ordinary use: no such event, a run in progress, back-pressure."""
_NAMES_INPUT = " unknown field"


def note_refusal(
    observe: Observer, status: int, reason: str, request_id: str, client: Sequence[object] | None
) -> None:
    """Report a refused request. Successes, server errors and expected refusals are not reported."""
    if not 400 <= status < 500 or status in _EXPECTED:
        return
    peer = str(client[0]) if client else None
    observe(RequestRefused(status, _without_input(reason), request_id, peer))


def _without_input(reason: str) -> str:
    """Remove the name of an unknown field from the reason: the sender wrote that name."""
    before, marker, _ = reason.partition(_NAMES_INPUT)
    return before + marker
