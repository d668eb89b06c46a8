"""Standard Webhooks 1.0.0: signatures `v1` (HMAC) and `v1a` (ed25519), also of Svix and GitLab."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256

from ackbox.errors import SettingError
from ackbox.model import InboundRequest
from ackbox.sources.schemes.ed25519 import Match, Sign, load_private, load_public
from ackbox.sources.schemes.scheme import Verification
from ackbox.sources.schemes.signatures import (
    decode_base64,
    is_same,
    judge_time,
    make_hmac,
    time_of,
    to_bytes,
    with_headers,
)

_PARTS = ("id", "timestamp", "signature")
SIGNATURES_LIMIT = 20
"""Svix signs with eleven keys at most. A check of ed25519 takes long enough for a limit."""


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A `whsec_` secret."""

    secret: bytes = field(repr=False)
    version: str = "v1"

    def matches(self, message: bytes, signatures: Iterable[str]) -> bool:
        expected = b64encode(self.sign(message))
        return any(is_same(expected, signature) for signature in signatures)

    def sign(self, message: bytes) -> bytes:
        return make_hmac(self.secret, message)


@dataclass(frozen=True, slots=True)
class Ed25519Key:
    """A `whpk_` key, which verifies, or a `whsk_` key, which also signs."""

    match: Match = field(repr=False)
    private: Sign | None = field(default=None, repr=False)
    version: str = "v1a"

    def matches(self, message: bytes, signatures: Iterable[str]) -> bool:
        decoded = (decode_base64(to_bytes(signature)) for signature in signatures)
        return any(self.match(message, signature) for signature in decoded if signature)

    def sign(self, message: bytes) -> bytes:
        if self.private is None:
            raise SettingError("a whpk_ key only verifies: signing a sample needs the whsk_ key")
        return self.private(message)


Key = HmacKey | Ed25519Key


def read_key(secret: bytes) -> Key:
    """Return the key of a secret in the form of Standard Webhooks."""
    kind, mark, encoded = secret.rpartition(b"_")
    decoded = decode_base64(encoded)
    match kind + mark, decoded:
        case (b"whsec_" | b"", bytes(key)) if key:
            return HmacKey(key)
        case b"whpk_", bytes(key) if len(key) == 32:
            return Ed25519Key(load_public(key))
        case b"whsk_", bytes(key) if len(key) == 64:
            return Ed25519Key(*load_private(key[:32]))
        case _:
            raise SettingError(
                "secret must be whsec_, whpk_ or whsk_ and standard base64, as the sender shows it;"
                " if the sender uses the text itself as key, use preset hmac"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """The headers `webhook-id`, `webhook-timestamp` and `webhook-signature`, or those of another
    prefix. If a request has headers of two prefixes, those of the first one count. A preset reads
    the key in the same order, so that the key is always the id that is signed."""

    keys: tuple[Key, ...] = field(repr=False)
    prefixes: tuple[str, ...] = ("webhook",)
    tolerance: timedelta = timedelta(seconds=300)

    def verify(self, request: InboundRequest) -> Verification:
        names = [f"{self._prefix(request)}-{part}" for part in _PARTS]
        if not any(request.header(f"{prefix}-signature") for prefix in self.prefixes):
            return Verification.UNSIGNED
        values = [request.headers_named(name) for name in names]
        if any(len(value) != 1 for value in values):
            return Verification.MALFORMED
        return self._judge(request, *(value[0] for value in values))

    def sign(self, request: InboundRequest) -> InboundRequest:
        prefix, key, time = self._prefix(request), self.keys[0], time_of(request)
        unique = sha256(request.body + time.encode()).hexdigest()[:24]
        identity = request.header(f"{prefix}-id") or f"msg_{unique}"
        signature = b64encode(key.sign(_message(identity, time, request.body))).decode()
        headers = {"id": identity, "timestamp": time, "signature": f"{key.version},{signature}"}
        return with_headers(request, {f"{prefix}-{name}": text for name, text in headers.items()})

    def _prefix(self, request: InboundRequest) -> str:
        used = {name for name, _ in request.headers}
        return next(
            (prefix for prefix in self.prefixes if used & {f"{prefix}-{part}" for part in _PARTS}),
            self.prefixes[0],
        )

    def _judge(self, request: InboundRequest, identity: str, time: str, given: str) -> Verification:
        entries = [entry for entry in given.split(" ") if entry]
        # With a dot in the id, part of a body that starts with digits could pass for the time.
        if not identity or "." in identity or len(entries) > SIGNATURES_LIMIT:
            return Verification.MALFORMED
        if not self._matches(_message(identity, time, request.body), entries):
            return Verification.BAD_SIGNATURE
        return judge_time(time, request, self.tolerance)

    def _matches(self, message: bytes, entries: Sequence[str]) -> bool:
        pairs = [entry.partition(",") for entry in entries]
        return any(
            key.matches(message, [text for version, _, text in pairs if version == key.version])
            for key in self.keys
        )


def _message(identity: str, time: str, body: bytes) -> bytes:
    return to_bytes(f"{identity}.{time}.") + body
