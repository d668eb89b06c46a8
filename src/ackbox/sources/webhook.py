"""A declared source as an implementation of the port `Webhook`: one request becomes events."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from ackbox.errors import InvalidEvent, SettingError
from ackbox.model import (
    Accepted,
    Envelope,
    Handshake,
    InboundRequest,
    OutcomeName,
    RandomBits,
    Refusal,
    RefusalReason,
    check_name,
    seal,
)
from ackbox.sources.declaration import NONE, SourceDeclaration
from ackbox.sources.fields import (
    BODY_HASH,
    Delivery,
    Field,
    FirstOf,
    read_name,
    read_sequence,
    read_time,
)
from ackbox.sources.presets import PRESETS
from ackbox.sources.sample import Sample
from ackbox.sources.schemes import Scheme, Verification
from ackbox.sources.split import split_delivery

DEFAULT_TYPE = "webhook"
DELIVERY_TYPE = "delivery"
_CONTENT_TYPE = "content-type"
_NO_HANDSHAKE = "Only POST delivers to this source, and this request is no handshake of its sender."
_DETAILS = {
    Verification.UNSIGNED: "The request has no signature of the sender.",
    Verification.MALFORMED: "The signature, or what it needs, is malformed or sent twice.",
    Verification.BAD_SIGNATURE: "The signature does not match: is the secret of this source right?",
    Verification.BAD_TIME: "The request was signed too long before or after it arrived.",
}
_ABSENT = FirstOf(())
_encode = msgspec.json.Encoder().encode


class SignedWebhook:
    """Verifies and reads the deliveries of one declared source."""

    def __init__(
        self, declaration: SourceDeclaration, secrets: tuple[bytes, ...], random_bits: RandomBits
    ) -> None:
        """Raise `SettingError` if a secret or an option is wrong for the scheme."""
        preset = declaration.preset
        self.name = declaration.name
        self.is_verified = declaration.is_verified
        self._preset = preset
        self._random_bits = random_bits
        self._settings = declaration.settings(secrets)
        self.scheme = _make_scheme(declaration, secrets)
        self._verified_by = preset.name if declaration.is_verified else None
        self._fingerprint = preset.fingerprint and declaration.is_verified
        self._split = declaration.split or preset.split
        self._verify_item = self.scheme.verify if preset.verifies_items else None
        fields = declaration.fields
        # The preset's key is that of a whole delivery: items that share a key would be lost.
        self._key = fields.get("key", BODY_HASH if declaration.split else preset.key)
        self._type = fields.get("type") or preset.type or _ABSENT
        self._lane = fields.get("lane") or preset.lane
        self._sequence = fields.get("sequence") or preset.sequence
        self._time = fields.get("time") or preset.time
        self._kept_headers = frozenset((_CONTENT_TYPE, *preset.kept_headers, *declaration.headers))

    def receive(self, request: InboundRequest) -> Accepted | Refusal | Handshake:
        greet = self._preset.unsigned_handshake
        if greet is not None and (result := greet(request, self._settings)) is not None:
            return result
        if request.method != "POST":
            return Refusal(405, RefusalReason.NOT_SUPPORTED, _NO_HANDSHAKE)
        verification = self.scheme.verify(request)
        if verification is not Verification.VERIFIED:
            return _refuse(verification)
        greet = self._preset.signed_handshake
        if greet is not None and (result := greet(request, self._settings)) is not None:
            return result
        return self._accept(request)

    def sample(
        self, url: str, now: datetime, *, key: str, event_type: str, body: bytes | None = None
    ) -> InboundRequest:
        """Return a delivery as the sender would make it and sign it with the first secret. A body
        that is given stays as it is."""
        sample = Sample(body)
        sample.put(self._key, key)
        sample.put(self._type, event_type)
        return self.scheme.sign(sample.request(url, now))

    def _accept(self, request: InboundRequest) -> Accepted | Refusal:
        delivery = Delivery(request)
        rule = self._split
        split = split_delivery(request, rule, self._verify_item) if rule else None
        if isinstance(split, Refusal):
            return split
        if split is None:
            event = self._seal(delivery, fingerprint=self._fingerprint)
            return Accepted((event,), (), self._preset.acknowledgement)
        parent = self._seal_parent(delivery)
        items = (replace(self._seal(item), parent_id=parent.id) for item in split.items)
        return Accepted((parent, *items), split.rejected, self._preset.acknowledgement)

    def _seal_parent(self, delivery: Delivery) -> Envelope:
        """Return the delivery that its items name as their parent: no field of an item is its."""
        return replace(
            self._seal(delivery),
            idempotency_key=_read_key(BODY_HASH, delivery),
            event_type=DELIVERY_TYPE,
            source_sequence=None,
            source_emitted_at=None,
            lane=None,
            outcome=OutcomeName.SPLIT,
        )

    def _seal(self, delivery: Delivery, *, fingerprint: bool = False) -> Envelope:
        request = delivery.request
        envelope = seal(
            request.body,
            request.received_at,
            self._random_bits,
            source=self.name,
            idempotency_key=_read_key(self._key, delivery),
            event_type=_read_type(self._type, delivery),
            source_sequence=read_sequence(self._sequence, delivery),
            source_emitted_at=read_time(self._time, delivery),
            lane=read_name(self._lane, delivery),
            request_id=request.request_id,
            headers=self._keep_headers(request.headers),
        )
        # These are checked already, once: `seal` would check them again for every delivery.
        return replace(
            envelope,
            content_type=_content_type(request.header(_CONTENT_TYPE) or ""),
            verified_by=self._verified_by,
            fingerprint=self._read_fingerprint(envelope, request) if fingerprint else None,
        )

    def _read_fingerprint(self, envelope: Envelope, request: InboundRequest) -> bytes:
        read_signed = self._preset.read_signed
        if read_signed is None:
            return envelope.payload_sha256
        return sha256(read_signed(request)).digest()

    def _keep_headers(self, headers: Sequence[tuple[str, str]]) -> str | None:
        """Return the headers that reach the handler, as JSON. Repeated ones are joined."""
        kept: dict[str, str] = {}
        for name, value in headers:
            if name in self._kept_headers:
                kept[name] = f"{kept[name]}, {value}" if name in kept else value
        return _encode(kept).decode() if kept else None


def _make_scheme(declaration: SourceDeclaration, secrets: tuple[bytes, ...]) -> Scheme:
    preset = declaration.preset if declaration.is_verified else PRESETS[NONE]
    try:
        return preset.scheme(declaration.settings(secrets))
    except SettingError as error:
        raise declaration.refuse(str(error)) from None


def _refuse(verification: Verification) -> Refusal:
    """Return the refusal. A request that carries a signature is kept: the secret may be wrong."""
    keep = verification is not Verification.UNSIGNED
    return Refusal(401, RefusalReason(verification), _DETAILS[verification], keep)


def _read_key(field: Field, delivery: Delivery) -> str:
    return read_name(field, delivery) or read_name(BODY_HASH, delivery) or ""


def _read_type(field: Field, delivery: Delivery) -> str:
    """Return the type; a text that cannot be one must not cost a verified event."""
    text = field.read(delivery)
    try:
        return DEFAULT_TYPE if text is None else check_name("type", text)
    except InvalidEvent:
        return DEFAULT_TYPE


@lru_cache
def _content_type(text: str) -> str:
    """Return the content type, checked. A sender uses one or two of them."""
    try:
        return check_name(_CONTENT_TYPE, text)
    except InvalidEvent:
        return "application/octet-stream"
