"""The senders' own SDKs accept what `ackbox send --source` signs."""

from datetime import UTC, datetime

import standardwebhooks
import stripe
from gidgethub.sansio import validate_event
from slack_sdk.signature import SignatureVerifier

from ackbox.model import InboundRequest
from ackbox.sources.presets import PRESETS
from support.sources.by_schemes import BODY, WHSEC, settings


def signed(preset: str, secret: str) -> InboundRequest:
    """Return a delivery that is signed now: most SDKs read the clock themselves."""
    sent = InboundRequest("POST", "/in/sample", (), BODY.encode(), datetime.now(UTC))
    return PRESETS[preset].scheme(settings(secret)).sign(sent)


def test_standardwebhooks_accepts_our_signature() -> None:
    sent = signed("standard-webhooks", WHSEC)
    webhook = standardwebhooks.Webhook(WHSEC)
    assert webhook.verify(sent.body, dict(sent.headers))["id"] == "evt_1"


def test_stripe_accepts_our_signature() -> None:
    header = signed("stripe", "whsec_x").header("stripe-signature") or ""
    assert stripe.WebhookSignature.verify_header(BODY, header, "whsec_x", tolerance=300)


def test_slack_accepts_our_signature() -> None:
    sent = signed("slack", "secret")
    assert SignatureVerifier("secret").is_valid_request(sent.body, dict(sent.headers))


def test_gidgethub_accepts_our_signature() -> None:
    signature = signed("github", "secret").header("x-hub-signature-256") or ""
    assert signature.startswith("sha256=")
    validate_event(BODY.encode(), signature=signature, secret="secret")
