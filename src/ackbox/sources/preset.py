"""The declaration of one sender: how it signs and shapes its deliveries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from ackbox.model import Acknowledgement, Handshake, InboundRequest, Refusal
from ackbox.sources.fields import BODY_HASH, Field
from ackbox.sources.schemes import Scheme
from ackbox.sources.split import SplitRule


@dataclass(frozen=True, slots=True)
class SchemeSettings:
    """The part of a source's table that its scheme and its handshakes need. `options` are the words
    that only this preset knows, each with its text."""

    secrets: tuple[bytes, ...] = field(repr=False)
    tolerance: timedelta = timedelta(seconds=300)
    public_url: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


RECEIPT_202 = Acknowledgement()
OK_200 = Acknowledgement(200)
"""The response for senders whose documentation names 200 as the only success."""

MakeScheme = Callable[[SchemeSettings], Scheme]
"""Return the scheme of a source, or raise `SettingError` if a secret or an option is wrong. The
message names the option and the allowed values, and never a secret."""

AnswerHandshake = Callable[[InboundRequest, SchemeSettings], Handshake | Refusal | None]
"""Return the response if the request is a handshake, a refusal if it is a forged one, or None if
the request is a delivery. Like `Scheme.verify`, it never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """How a known sender signs and shapes its deliveries.

    `key` is read first; if nothing is found, the key is the SHA-256 of the body. The other fields
    are None if nothing is found, and the type is then `webhook`. `kept_headers` are stored with the
    event, in lower case. With `fingerprint`, the signature does not cover the key, so that a
    delivery with a known body is a duplicate too (F47). `read_signed` returns the signed bytes if
    they are not the body: a delivery in which these are known is then no new event. `options` are
    the words of the source's table that only this preset knows; those of `secret_options` are
    secrets too, so that the table has a reference to each.
    """

    name: str
    scheme: MakeScheme
    key: Field = BODY_HASH
    type: Field | None = None
    lane: Field | None = None
    sequence: Field | None = None
    time: Field | None = None
    kept_headers: tuple[str, ...] = ()
    fingerprint: bool = False
    read_signed: Callable[[InboundRequest], bytes] | None = None
    needs_secret: bool = True
    needs_public_url: bool = False
    has_time: bool = False
    options: tuple[str, ...] = ()
    secret_options: tuple[str, ...] = ()
    unsigned_handshake: AnswerHandshake | None = None
    """Called before verification, for GET and POST: the sender does not sign this handshake."""
    signed_handshake: AnswerHandshake | None = None
    """Called for a verified request only."""
    acknowledgement: Acknowledgement = RECEIPT_202
    split: SplitRule | None = None
    """Where a delivery with several events has its items. The fields are then read from each item,
    and a delivery that has no items, or one, is one event."""
    verifies_items: bool = False
    """Each item carries its own secret: the scheme accepts a delivery if one of its items is good,
    and is asked again for each item."""
