"""The senders' own SDKs accept what the presets of Twilio, SendGrid, Mailgun, Paddle and Meta
sign."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode

import pytest
from mailgun.security import SecurityGuard
from msgspec.structs import replace
from paddle_billing.Notifications import Secret, Verifier
from pywa.utils import webhook_updates_validator
from sendgrid.helpers.eventwebhook import EventWebhook
from twilio.request_validator import RequestValidator

from ackbox.model import InboundRequest
from ackbox.sources.presets import PRESETS
from support.sources.by_senders import private_key, public_key, settings

BODY = '{"name":"Olá 😀","event-data":{"event":"opened"}}'
FORM = "application/x-www-form-urlencoded"
URL = "https://example.com/in/x"


def sign(
    preset: str, secret: str, body: str = BODY, kind: str = "application/json"
) -> InboundRequest:
    """Return a delivery that is signed now: most SDKs read the clock themselves."""
    headers = (("content-type", kind),)
    sent = InboundRequest("POST", "/in/x?a=%27", headers, body.encode(), datetime.now(UTC))
    return PRESETS[preset].scheme(settings(secret, public_url=URL)).sign(sent)


def test_twilio_accepts_our_signature_of_a_form() -> None:
    fields = {"Body": "Olá 😀 a=b&c", "From": "+1", "MediaUrl0": ""}
    sent = sign("twilio", "token", urlencode(fields), FORM)
    signature = sent.header("x-twilio-signature")
    assert RequestValidator("token").validate(f"{URL}?a=%27", fields, signature)
    assert not RequestValidator("token").validate(f"{URL}?a='", fields, signature)


def test_twilio_accepts_our_signature_of_json() -> None:
    sent = sign("twilio", "token")
    url = sent.url.replace("/in/x", URL)
    assert RequestValidator("token").validate(url, BODY, sent.header("x-twilio-signature"))


def test_sendgrid_accepts_our_signature() -> None:
    sent = sign("sendgrid", private_key(), BODY + "\r\n")
    prefix = "x-twilio-email-event-webhook"
    signature, time = sent.header(f"{prefix}-signature"), sent.header(f"{prefix}-timestamp")
    assert EventWebhook(public_key()).verify_signature(BODY + "\r\n", signature, time)


def test_mailgun_accepts_our_signature() -> None:
    signed = json.loads(sign("mailgun", "key").body)["signature"]
    assert SecurityGuard.verify_webhook(signing_key="key", **signed)
    form = {
        name: values[0]
        for name, values in parse_qs(sign("mailgun", "key", "a=b", FORM).body.decode()).items()
    }
    assert form["a"] == "b"
    assert SecurityGuard.verify_webhook("key", form["token"], form["timestamp"], form["signature"])


def test_paddle_accepts_our_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_MODE", raising=False)
    sent = sign("paddle", "pdl_ntfset_x")
    headers = {"Paddle-Signature": sent.header("paddle-signature")}
    request = SimpleNamespace(headers=headers, body=sent.body)
    assert Verifier(60).verify(request, Secret("pdl_ntfset_x"))


def test_pywa_accepts_our_signature() -> None:
    sent = sign("meta", "secret")
    signature = sent.header("x-hub-signature-256") or ""
    assert signature.startswith("sha256=")
    assert webhook_updates_validator("secret", sent.body, signature)
    changed = replace(sent, body=sent.body + b" ")
    assert not webhook_updates_validator("secret", changed.body, signature)
