"""Shopify: an HMAC of the body. The id of a delivery is in a header that is not signed."""

from ackbox.sources.fields import Header
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import HmacHeader, Scheme, check_secrets, parse_template


def scheme(settings: SchemeSettings) -> Scheme:
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="x-shopify-hmac-sha256",
        encoding="base64",
        signed=parse_template("{body}"),
    )


SHOPIFY = Preset(
    name="shopify",
    scheme=scheme,
    key=Header("x-shopify-webhook-id"),
    type=Header("x-shopify-topic"),
    time=Header("x-shopify-triggered-at"),
    kept_headers=(
        "x-shopify-topic",
        "x-shopify-sub-topic",
        "x-shopify-shop-domain",
        "x-shopify-api-version",
        "x-shopify-webhook-id",
        "x-shopify-event-id",
        "x-shopify-triggered-at",
        "x-shopify-name",
    ),
    fingerprint=True,
)
