"""An HMAC in a header: the scheme of GitHub, Shopify, Slack and most other senders."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from ackbox.model import InboundRequest
from ackbox.sources.schemes.scheme import Verification
from ackbox.sources.schemes.signatures import (
    is_same,
    judge_time,
    make_hmac,
    time_of,
    with_headers,
)
from ackbox.sources.schemes.templates import Template

HASHES = ("sha256", "sha1", "sha384", "sha512")


def encode_hex(digest: bytes) -> bytes:
    return digest.hex().encode()


ENCODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "hex": encode_hex,
    "base64": b64encode,
    "base64url": urlsafe_b64encode,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacHeader:
    """A header contains `prefix` and the encoded HMAC of the signed bytes.

    The encoded texts are compared, not the decoded bytes: base64 has several texts for the same
    bytes, and only one of them is what the sender wrote.
    """

    secrets: tuple[bytes, ...] = field(repr=False)
    header: str
    signed: Template
    prefix: str = ""
    hash: str = "sha256"
    encoding: str = "hex"
    timestamp: str | None = None
    tolerance: timedelta = timedelta(seconds=300)

    def verify(self, request: InboundRequest) -> Verification:
        signatures = request.headers_named(self.header)
        if not any(signatures):
            return Verification.UNSIGNED
        message = self.signed.render(request)
        if len(signatures) > 1 or message is None:
            return Verification.MALFORMED
        expected = (self._sign(secret, message) for secret in self.secrets)
        if not any(is_same(text, signatures[0]) for text in expected):
            return Verification.BAD_SIGNATURE
        return self._judge_time(request)

    def sign(self, request: InboundRequest) -> InboundRequest:
        if self.timestamp:
            request = with_headers(request, {self.timestamp: time_of(request)})
        signature = self._sign(self.secrets[0], self.signed.render(request) or b"")
        return with_headers(request, {self.header: signature.decode("latin-1")})

    def _sign(self, secret: bytes, message: bytes) -> bytes:
        digest = make_hmac(secret, message, self.hash)
        return self.prefix.encode() + ENCODINGS[self.encoding](digest)

    def _judge_time(self, request: InboundRequest) -> Verification:
        if not self.timestamp:
            return Verification.VERIFIED
        times = request.headers_named(self.timestamp)
        if len(times) != 1:
            return Verification.MALFORMED
        return judge_time(times[0], request, self.tolerance)
