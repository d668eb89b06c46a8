"""Time and signatures as pairs in one header, as in `t=1492774577,v1=88a0...`: Stripe, Paddle."""

from dataclasses import dataclass, field
from datetime import timedelta

from ackbox.model import InboundRequest
from ackbox.sources.schemes.scheme import Verification
from ackbox.sources.schemes.signatures import (
    is_same,
    judge_time,
    make_hmac,
    time_of,
    to_bytes,
    with_headers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacPairs:
    """A header contains the time and one or more HMACs, in hexadecimal digits, of the time, `joint`
    and the body. Pairs with other names are ignored: they are signatures of other versions."""

    secrets: tuple[bytes, ...] = field(repr=False)
    header: str
    separator: str
    time_name: str
    signature_name: str
    joint: str
    tolerance: timedelta = timedelta(seconds=300)

    def verify(self, request: InboundRequest) -> Verification:
        values = request.headers_named(self.header)
        if not any(values):
            return Verification.UNSIGNED
        pairs = [pair.strip(" ").partition("=") for pair in values[0].split(self.separator)]
        times = [value for name, _, value in pairs if name == self.time_name]
        signatures = [value for name, _, value in pairs if name == self.signature_name]
        if len(values) > 1 or len(times) != 1 or not signatures:
            return Verification.MALFORMED
        for secret in self.secrets:
            expected = self._sign(secret, times[0], request.body)
            for given in signatures:
                if is_same(expected, given):
                    return judge_time(times[0], request, self.tolerance)
        return Verification.BAD_SIGNATURE

    def sign(self, request: InboundRequest) -> InboundRequest:
        time = time_of(request)
        signature = self._sign(self.secrets[0], time, request.body).decode()
        pairs = (f"{self.time_name}={time}", f"{self.signature_name}={signature}")
        return with_headers(request, {self.header: self.separator.join(pairs)})

    def _sign(self, secret: bytes, time: str, body: bytes) -> bytes:
        message = to_bytes(time + self.joint) + body
        return make_hmac(secret, message).hex().encode()
