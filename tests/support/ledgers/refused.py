"""Requests that a source refused, for tests of the quarantine."""

from collections.abc import Sequence
from datetime import datetime

from ackbox.model import EventId, InboundRequest, Refusal, RefusalReason, RefusedRequest
from support.ledgers.events import NOON

BUDGET_OF_ALL = 1 << 20
WRONG_SECRET = Refusal(401, RefusalReason.BAD_SIGNATURE, "No signature matches.", keep=True)


def inbound(
    body: bytes = b"{}",
    *,
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),),
    received_at: datetime = NOON,
) -> InboundRequest:
    return InboundRequest("POST", "/in/github", tuple(headers), body, received_at, "request-1")


def refused(
    source: str = "github",
    body: bytes = b"{}",
    *,
    reason: RefusalReason = RefusalReason.BAD_SIGNATURE,
    delivery_id: EventId | None = None,
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),),
) -> RefusedRequest:
    request = inbound(body, headers=headers)
    return RefusedRequest(source, request, reason, "No signature matches.", delivery_id)
