"""How senders sign their deliveries, and how ackbox verifies the signatures.

scheme             the protocol of every scheme, and the result of a verification
hmac_header        an HMAC in a header: GitHub, Shopify, Slack, and senders without a preset
hmac_pairs         time and HMACs as pairs in one header: Stripe, Paddle
standard_webhooks  the headers of Standard Webhooks: Svix, GitLab and many others
tokens             a token in a header, or nothing at all
templates          the bytes that a signature covers
signatures         comparisons, times and headers, for all of them
ed25519, crypto    public keys, with the optional package `cryptography`

Other packages import from here, not from these modules.
"""

from ackbox.sources.schemes.hmac_header import ENCODINGS, HASHES, HmacHeader
from ackbox.sources.schemes.hmac_pairs import HmacPairs
from ackbox.sources.schemes.scheme import Scheme, Verification
from ackbox.sources.schemes.signatures import (
    check_secrets,
    decode_base64,
    is_same,
    judge_time,
    time_of,
    to_bytes,
    with_headers,
)
from ackbox.sources.schemes.standard_webhooks import StandardWebhooks, read_key
from ackbox.sources.schemes.templates import Template, parse_template
from ackbox.sources.schemes.tokens import NoVerification, TokenHeader

__all__ = [
    "ENCODINGS",
    "HASHES",
    "HmacHeader",
    "HmacPairs",
    "NoVerification",
    "Scheme",
    "StandardWebhooks",
    "Template",
    "TokenHeader",
    "Verification",
    "check_secrets",
    "decode_base64",
    "is_same",
    "judge_time",
    "parse_template",
    "read_key",
    "time_of",
    "to_bytes",
    "with_headers",
]
