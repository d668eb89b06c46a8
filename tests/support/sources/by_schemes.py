"""Samples of the presets for Standard Webhooks, Stripe, GitHub, GitLab, Shopify and Slack, and of
the generic presets."""

import hmac
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime

import slack_sdk.signature
import standardwebhooks
import stripe

from ackbox.sources.preset import SchemeSettings
from support.sources.samples import Sample, request

AT = 1_790_000_000
BODY = '{"id":"evt_1","type":"invoice.paid","action":"opened","object_kind":"push","name":"Olá 😀"}'
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_WHSEC = b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
WHSK = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)


def settings(*secrets: str, **options: str) -> SchemeSettings:
    return SchemeSettings(tuple(secret.encode() for secret in secrets), options=options)


def samples() -> Iterator[Sample]:
    yield from _standard_webhooks()
    yield _stripe()
    yield from _github_and_shopify()
    yield from _gitlab()
    yield from _slack()
    yield from _generic()
    yield from _tokens()


def _standard_webhooks() -> Iterator[Sample]:
    moment = datetime.fromtimestamp(AT, UTC)
    signature = standardwebhooks.Webhook(WHSEC).sign("msg_1", moment, BODY)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(AT), "webhook-signature": signature}
    yield Sample(
        preset="standard-webhooks",
        made_by="standardwebhooks (PyPI)",
        settings=settings(WHSEC),
        request=request(BODY.encode(), headers, AT),
        signature="webhook-signature",
        time="webhook-timestamp",
        timed=True,
        other_secret=OTHER_WHSEC,
        covers=("body", "webhook-id"),
        key="msg_1",
        type="invoice.paid",
    )
    for secret, version, signature in (
        (WHSEC, "v1", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        (
            WHSK,
            "v1a",
            "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM"
            "+m7TBAg==",
        ),
    ):
        headers = {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": signature,
        }
        yield Sample(
            preset="standard-webhooks",
            made_by=f"the published vector for {version}",
            settings=settings(secret),
            request=request(b'{"test": 2432232314}', headers, 1614265330),
            signature="webhook-signature",
            time="webhook-timestamp",
            timed=True,
            other_secret=OTHER_WHSEC,
            covers=("body", "webhook-id"),
            key="msg_p5jXN8AQM9LWM0D4loKWxJek",
        )


def _stripe() -> Sample:
    header = stripe.WebhookSignature.generate_signature_header(BODY, "whsec_test_secret", AT)
    return Sample(
        preset="stripe",
        made_by="stripe (PyPI)",
        settings=settings("whsec_test_secret"),
        request=request(BODY.encode(), {"Stripe-Signature": header}, AT),
        signature="stripe-signature",
        timed=True,
        key="evt_1",
        type="invoice.paid",
    )


def _github_and_shopify() -> Iterator[Sample]:
    yield Sample(
        preset="github",
        made_by="the published vector",
        settings=settings("It's a Secret to Everybody"),
        request=request(
            b"Hello, World!",
            {
                "X-Hub-Signature-256": "sha256="
                "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
                "X-GitHub-Event": "push",
                "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            },
            AT,
        ),
        signature="x-hub-signature-256",
        key="72d3162e-cc78-11e3-81ab-4c9367dc0958",
        type="push",
    )
    yield Sample(
        preset="shopify",
        made_by="getHmac of @shopify/shopify-api (npm)",
        settings=settings("hush"),
        request=request(
            b'{"id":1}',
            {
                "X-Shopify-Hmac-Sha256": "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY=",
                "X-Shopify-Topic": "orders/create",
                "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
            },
            AT,
        ),
        signature="x-shopify-hmac-sha256",
        key="b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
        type="orders/create",
    )


def _gitlab() -> Iterator[Sample]:
    secret = "whsec_dGVzdHRlc3R0ZXN0dGVzdHRlc3R0ZXN0dGVzdHRlc3Q="
    identity = "f5e5f430-f57b-4e6e-9fac-d9128cd7232f"
    moment = datetime.fromtimestamp(1744578123, UTC)
    body = '{"object_kind":"push"}'
    headers = {
        "X-Gitlab-Event": "Push Hook",
        "webhook-id": identity,
        "webhook-timestamp": "1744578123",
        "webhook-signature": standardwebhooks.Webhook(secret).sign(identity, moment, body),
    }
    yield Sample(
        preset="gitlab",
        made_by="standardwebhooks (PyPI)",
        settings=settings(secret),
        request=request(body.encode(), headers, 1744578123),
        signature="webhook-signature",
        time="webhook-timestamp",
        timed=True,
        other_secret=OTHER_WHSEC,
        covers=("body", "webhook-id"),
        key=identity,
        type="push",
    )
    headers = {
        "X-Gitlab-Event": "Push Hook",
        "Idempotency-Key": identity,
        "X-Gitlab-Token": "Glpat-Token",
    }
    yield Sample(
        preset="gitlab",
        made_by="the token itself",
        settings=settings("Glpat-Token"),
        request=request(body.encode(), headers, AT),
        signature="x-gitlab-token",
        covers=(),
        key=identity,
        type="push",
    )


def _slack() -> Iterator[Sample]:
    verifier = slack_sdk.signature.SignatureVerifier("8f742231b10e8888abcd99yyyzzz85a5")
    body = '{"type":"event_callback","event_id":"Ev1","event_time":1,"event":{"type":"message"}}'
    signature = verifier.generate_signature(timestamp=str(AT), body=body)
    headers = {"X-Slack-Request-Timestamp": str(AT), "X-Slack-Signature": signature or ""}
    yield Sample(
        preset="slack",
        made_by="slack-sdk (PyPI)",
        settings=settings("8f742231b10e8888abcd99yyyzzz85a5"),
        request=request(body.encode(), headers, AT),
        signature="x-slack-signature",
        time="x-slack-request-timestamp",
        timed=True,
        key="Ev1",
        type="message",
    )
    command = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    yield Sample(
        preset="slack",
        made_by="the published vector",
        settings=settings("8f742231b10e8888abcd99yyyzzz85a5"),
        request=request(command, headers, 1531420618),
        signature="x-slack-signature",
        time="x-slack-request-timestamp",
        timed=True,
        key="398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        type="/webhook-collect",
    )


def _generic() -> Iterator[Sample]:
    yield Sample(
        preset="hmac",
        made_by="case 2 of RFC 4231",
        settings=settings("Jefe", header="X-Signature"),
        request=request(
            b"what do ya want for nothing?",
            {
                "X-Signature": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            },
            AT,
        ),
        signature="x-signature",
    )
    message = f"POST https://inbox.example/in/sample?a=1 key-7 {AT} ".encode() + BODY.encode()
    digest = b64encode(hmac.digest(b"Secret", message, "sha512")).decode()
    words = {
        "header": "X-Sign",
        "prefix": "sig=",
        "hash": "sha512",
        "encoding": "base64",
        "timestamp": "X-Time",
        "signed": "{method} {url} {header:X-Id} {timestamp} {body}",
    }
    headers = {"X-Sign": f"sig={digest}", "X-Id": "key-7", "X-Time": str(AT)}
    yield Sample(
        preset="hmac",
        made_by="hmac of the standard library, with every option",
        settings=SchemeSettings(
            (b"Secret",), public_url="https://inbox.example/in/sample", options=words
        ),
        request=request(BODY.encode(), headers, AT, "/in/sample?a=1"),
        signature="x-sign",
        time="x-time",
        timed=True,
        covers=("body", "url", "x-id"),
        type="invoice.paid",
    )


def _tokens() -> Iterator[Sample]:
    basic = "Basic " + b64encode(b"Shop:Pass:Word").decode()
    for preset, header, value, scheme_settings in (
        ("bearer", "Authorization", "Bearer Secret-Token-1", settings("Secret-Token-1")),
        ("basic", "Authorization", basic, settings("Shop:Pass:Word")),
        ("header", "X-Token", "Secret-Token-2", settings("Secret-Token-2", header="X-Token")),
    ):
        headers = {header: value, "Idempotency-Key": "order-7"}
        yield Sample(
            preset=preset,
            made_by="the token itself",
            settings=scheme_settings,
            request=request(BODY.encode(), headers, AT),
            signature=header.lower(),
            covers=(),
            key="order-7",
            type="invoice.paid",
        )
