"""The two sides of a signature: verify a delivery, and sign a sample of one."""

from enum import StrEnum
from typing import Protocol

from ackbox.model import InboundRequest


class Verification(StrEnum):
    """The result of verifying one request. Each failure has the name of its `RefusalReason`."""

    VERIFIED = "verified"
    UNSIGNED = "unsigned"
    """The request does not carry the signature of the scheme at all."""
    MALFORMED = "malformed"
    """The signature, its time or its id is there, but repeated or not in the form of the scheme."""
    BAD_SIGNATURE = "bad_signature"
    """No secret makes this signature."""
    BAD_TIME = "bad_time"
    """The signature is right, but it was made too long before or after the arrival."""


class Scheme(Protocol):
    """How a sender proves that a delivery is its own.

    Both methods are pure. A scheme never shows its secrets in a `repr`, a message or an error.
    """

    def verify(self, request: InboundRequest) -> Verification:
        """Judge a request. The time of a signature is compared with `request.received_at`, so that
        a request that was kept can be verified again later. Whatever the bytes of the request are,
        this method returns and does not raise. It compares bytes, in constant time."""
        ...

    def sign(self, request: InboundRequest) -> InboundRequest:
        """Return the request as the sender would sign it at `request.received_at` with the first
        secret: with further headers, another URL or another body, whatever the scheme needs."""
        ...
