"""GitLab: a signing token (Standard Webhooks, since 19.0) or the older secret token."""

from dataclasses import dataclass, field

from ackbox.model import InboundRequest
from ackbox.sources.fields import FirstOf, Header, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import (
    Scheme,
    StandardWebhooks,
    TokenHeader,
    Verification,
    check_secrets,
    read_key,
)


@dataclass(frozen=True, slots=True)
class SignedOrToken:
    """Both tokens, for the time in which hooks are changed from the one to the other. A request
    with a signature is judged by its signature alone: a wrong signature never falls back to the
    token."""

    signed: Scheme = field(repr=False)
    token: Scheme = field(repr=False)

    def verify(self, request: InboundRequest) -> Verification:
        by_signature = self.signed.verify(request)
        if by_signature is Verification.UNSIGNED:
            return self.token.verify(request)
        return by_signature

    def sign(self, request: InboundRequest) -> InboundRequest:
        return self.signed.sign(request)


def scheme(settings: SchemeSettings) -> Scheme:
    """Return the scheme. A secret that begins with `whsec_` is a signing token."""
    secrets = check_secrets(settings.secrets)
    keys = tuple(read_key(secret) for secret in secrets if secret.startswith(b"whsec_"))
    tokens = tuple(secret for secret in secrets if not secret.startswith(b"whsec_"))
    signed = StandardWebhooks(keys=keys, tolerance=settings.tolerance)
    token = TokenHeader(tokens=tokens, header="x-gitlab-token")
    if keys and tokens:
        return SignedOrToken(signed, token)
    return signed if keys else token


GITLAB = Preset(
    name="gitlab",
    scheme=scheme,
    # Both headers have the same id. Only the first is signed, so it comes first.
    key=FirstOf((Header("webhook-id"), Header("idempotency-key"))),
    # A custom template can replace the whole body: then only the header is left.
    type=FirstOf((Pointer("/object_kind"), Pointer("/event_name"), Header("x-gitlab-event"))),
    time=Header("webhook-timestamp"),
    kept_headers=(
        "x-gitlab-event",
        "x-gitlab-instance",
        "x-gitlab-webhook-uuid",
        "x-gitlab-event-uuid",
        "idempotency-key",
        "webhook-id",
        "webhook-timestamp",
    ),
    has_time=True,
)
