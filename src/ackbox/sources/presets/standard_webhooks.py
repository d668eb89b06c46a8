"""Standard Webhooks, and Svix, which has the same scheme with headers of its own."""

from ackbox.sources.fields import FirstOf, Header, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import Scheme, StandardWebhooks, check_secrets, read_key


def standard_scheme(settings: SchemeSettings) -> Scheme:
    keys = tuple(read_key(secret) for secret in check_secrets(settings.secrets))
    return StandardWebhooks(keys=keys, tolerance=settings.tolerance)


def svix_scheme(settings: SchemeSettings) -> Scheme:
    keys = tuple(read_key(secret) for secret in check_secrets(settings.secrets))
    return StandardWebhooks(keys=keys, prefixes=("svix", "webhook"), tolerance=settings.tolerance)


STANDARD_WEBHOOKS = Preset(
    name="standard-webhooks",
    scheme=standard_scheme,
    key=Header("webhook-id"),
    type=Pointer("/type"),
    time=FirstOf((Pointer("/timestamp"), Header("webhook-timestamp"))),
    kept_headers=("webhook-id", "webhook-timestamp"),
    has_time=True,
)

SVIX = Preset(
    name="svix",
    scheme=svix_scheme,
    key=FirstOf((Header("svix-id"), Header("webhook-id"))),
    type=FirstOf((Pointer("/type"), Pointer("/eventType"))),
    time=FirstOf((Pointer("/timestamp"), Header("svix-timestamp"), Header("webhook-timestamp"))),
    kept_headers=("svix-id", "svix-timestamp", "webhook-id", "webhook-timestamp"),
    has_time=True,
)
