"""Schemes that sign nothing: a token that the sender repeats in a header, or nothing at all."""

from dataclasses import dataclass, field

from ackbox.model import InboundRequest
from ackbox.sources.schemes.scheme import Verification
from ackbox.sources.schemes.signatures import is_same, with_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHeader:
    """A header contains a token. `method` is the first word of an Authorization header, such as
    `Bearer`; capital and small letters are the same in it (RFC 9110)."""

    tokens: tuple[bytes, ...] = field(repr=False)
    header: str
    method: str = ""

    def verify(self, request: InboundRequest) -> Verification:
        values = [value for value in request.headers_named(self.header) if self._is_ours(value)]
        if not values:
            return Verification.UNSIGNED
        if len(request.headers_named(self.header)) > 1:
            return Verification.MALFORMED
        given = values[0][len(self.method) :].lstrip(" ") if self.method else values[0]
        matches = any(is_same(token, given) for token in self.tokens)
        return Verification.VERIFIED if matches else Verification.BAD_SIGNATURE

    def sign(self, request: InboundRequest) -> InboundRequest:
        token = self.tokens[0].decode("latin-1")
        value = f"{self.method} {token}" if self.method else token
        return with_headers(request, {self.header: value})

    def _is_ours(self, value: str) -> bool:
        method, blank, _ = value.partition(" ")
        if self.method:
            return blank == " " and method.lower() == self.method.lower()
        return bool(value)


class NoVerification:
    """Every request is taken for a delivery of the sender."""

    def verify(self, _: InboundRequest) -> Verification:
        return Verification.VERIFIED

    def sign(self, request: InboundRequest) -> InboundRequest:
        return request
