"""A small preset of our own: the secret itself is the signature."""

from dataclasses import dataclass
from hmac import compare_digest

from msgspec.structs import replace

from ackbox.model import Handshake, InboundRequest, Refusal
from ackbox.sources.fields import Header, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import Verification


@dataclass(frozen=True, slots=True)
class SecretScheme:
    secrets: tuple[bytes, ...]

    def verify(self, request: InboundRequest) -> Verification:
        given = request.header("x-secret")
        if given is None:
            return Verification.UNSIGNED
        if given == "stale":
            return Verification.BAD_TIME
        matches = [compare_digest(given.encode(), secret) for secret in self.secrets]
        return Verification.VERIFIED if any(matches) else Verification.BAD_SIGNATURE

    def sign(self, request: InboundRequest) -> InboundRequest:
        header = ("x-secret", self.secrets[0].decode())
        return replace(request, headers=(*request.headers, header))


class OpenScheme:
    def verify(self, request: InboundRequest) -> Verification:
        return Verification.VERIFIED

    def sign(self, request: InboundRequest) -> InboundRequest:
        return request


def say_hello(request: InboundRequest, settings: SchemeSettings) -> Handshake | Refusal | None:
    return Handshake(b"hello") if request.url.endswith("?hello") else None


SECRET = Preset(
    name="secret",
    scheme=lambda settings: SecretScheme(settings.secrets),
    key=Header("x-id"),
    type=Pointer("/type"),
    sequence=Pointer("/number"),
    time=Pointer("/time"),
    kept_headers=("x-topic",),
    has_time=True,
    options=("header", "token"),
    secret_options=("token",),
    unsigned_handshake=say_hello,
)
OPEN = Preset(name="none", scheme=lambda settings: OpenScheme(), needs_secret=False)
URL = Preset(name="url", scheme=lambda settings: OpenScheme(), needs_public_url=True)
PRESETS = {"none": OPEN, "secret": SECRET, "url": URL}
