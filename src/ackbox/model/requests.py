"""Requests of senders as they arrived, and the results of receiving one."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from ackbox.model.events import Envelope


class InboundRequest(Struct, frozen=True, gc=False):
    """A request as it arrived. `url` is the path and query as received, still percent-encoded.

    Header names are lower-case, and values are decoded as latin-1, so that no header is lost. A
    header that was sent twice is here twice.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    received_at: datetime
    request_id: str | None = None

    def headers_named(self, name: str) -> list[str]:
        """Return every value of this header. The name is given in lower case."""
        return [value for header, value in self.headers if header == name]

    def header(self, name: str) -> str | None:
        """Return the first value of this header, or None."""
        for header, value in self.headers:
            if header == name:
                return value
        return None


class RefusalReason(StrEnum):
    """The reasons for which a source refuses a request: the values of a metric label."""

    UNSIGNED = "unsigned"
    """The request does not carry what the scheme signs with: it is not from the sender."""
    BAD_SIGNATURE = "bad_signature"
    BAD_TIME = "bad_time"
    """The signed time is malformed, or too far from the time of arrival."""
    MALFORMED = "malformed"
    """What the scheme reads is ambiguous or not in its form: a header sent twice, say."""
    UNREADABLE = "unreadable"
    """The signature is right, but the body or a field cannot be read."""
    NOT_SUPPORTED = "not_supported"
    """A handshake that this source does not have, or a method other than its own."""


class RejectedItem(Struct, frozen=True):
    """An item of a delivery that could not become an event. `body` is the delivery with the other
    items removed."""

    body: bytes
    reason: RefusalReason
    detail: str


class Acknowledgement(Struct, frozen=True):
    """The response that tells a sender that its delivery is durable. Without a body, the body of
    the response is the receipt. Some senders take only 200 for a success, and Twilio reads XML."""

    status: int = 202
    body: bytes | None = None
    content_type: str = "application/json"


class Accepted(Struct, frozen=True, gc=False):
    """Events to record, and the items of the delivery that could not become events.

    If a delivery has several events, the delivery itself is the first envelope, and the other
    envelopes name it as their parent.
    """

    envelopes: tuple[Envelope, ...]
    rejected: tuple[RejectedItem, ...] = ()
    acknowledgement: Acknowledgement = Acknowledgement()


class Refusal(Struct, frozen=True):
    """A request that is not accepted. `detail` repeats nothing of the request and no secret.

    If `keep` is true, the request carries the scheme's signature and failed: it goes into the
    quarantine.
    """

    status: int
    reason: RefusalReason
    detail: str
    keep: bool = False


class Handshake(Struct, frozen=True):
    """The response by which an endpoint shows a sender that it is the right one."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
