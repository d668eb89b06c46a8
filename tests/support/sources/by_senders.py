"""Samples of the presets for Twilio, Meta, Telegram, SendGrid, Mailgun, Paddle, Linear, Zoom and
Microsoft Graph."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from paddle_billing.Notifications import PaddleSignature
from twilio.request_validator import RequestValidator

from ackbox.model import InboundRequest
from ackbox.sources.fields import Delivery, find
from ackbox.sources.preset import SchemeSettings
from ackbox.sources.presets.twilio import sorted_fields
from support.sources.mutations import changed_texts
from support.sources.samples import Sample, request

AT = 1_790_000_000
FORM = "application/x-www-form-urlencoded"
Encode = Callable[[dict[str, str]], tuple[bytes, str]]
JSON = {"Content-Type": "application/json"}


def settings(*secrets: str, public_url: str | None = None, **options: str) -> SchemeSettings:
    encoded = tuple(secret.encode() for secret in secrets)
    return SchemeSettings(encoded, public_url=public_url, options=options)


def samples() -> Iterator[Sample]:
    yield from _twilio()
    yield _meta()
    yield _telegram()
    yield from _sendgrid()
    yield from _mailgun()
    yield _paddle()
    yield _linear()
    yield _zoom()
    yield _msgraph()


def _twilio() -> Iterator[Sample]:
    url, token = "https://mycompany.com/in/sms?foo=1&bar=2", "12345"
    fields = {
        "MediaUrl0": "",
        "MessageSid": "SM1",
        "From": "+1",
        "To": "+2",
        "Body": "Olá 😀 a=b&c",
    }
    signature = RequestValidator(token).compute_signature(url, fields)
    yield Sample(
        preset="twilio",
        made_by="twilio (PyPI)",
        settings=settings(token, public_url="https://mycompany.com/in/sms"),
        request=request(
            urlencode({**fields}).encode(),
            {"X-Twilio-Signature": signature, "Content-Type": f"{FORM}; charset=UTF-8"},
            AT,
            url="/in/sms?foo=1&bar=2",
        ),
        signature="x-twilio-signature",
        covers=("url", "body"),
        covered=twilio_fields,
        key="SM1",
    )
    body = '{"property": "value", "boolean": true}'
    query = f"?foo=1&bodySHA256={RequestValidator(token).compute_hash(body)}"
    signature = RequestValidator(token).compute_signature(
        f"https://mycompany.com:8443/in/sms{query}", {}
    )
    yield Sample(
        preset="twilio",
        made_by="twilio (PyPI), for JSON",
        settings=settings(token, public_url="https://mycompany.com:8443/in/sms"),
        request=request(
            body.encode(), {"X-Twilio-Signature": signature, **JSON}, AT, url=f"/in/sms{query}"
        ),
        signature="x-twilio-signature",
        covers=("url", "body"),
    )


def twilio_fields(sent: InboundRequest) -> object:
    return sent.url, list(sorted_fields(sent.body))


def _meta() -> Sample:
    body = (
        rb'{"object":"page","entry":[{"id":"1","time":1,"messaging":[{"message":{"mid":"m_1",'
        rb'"text":"\u00e4\u00f6\u00e5 \u0040"}}]}]}'
    )
    signature = "sha256=f2d58039dd74f0c6547beb95152c6a54b16701b2cb56c7b20d9aaa12d56f2ee2"
    return Sample(
        preset="meta",
        made_by="the algorithm of pywa (PyPI)",
        settings=settings("appsecret"),
        request=request(body, {"X-Hub-Signature-256": signature, **JSON}, AT),
        signature="x-hub-signature-256",
        key="m_1",
        type="page.message",
    )


def _telegram() -> Sample:
    body = b'{"update_id":10001,"message":{"message_id":7,"date":1700000000,"text":"hi"}}'
    return Sample(
        preset="telegram",
        made_by="the Bot API",
        settings=settings("Secret_Token-1"),
        request=request(body, {"X-Telegram-Bot-Api-Secret-Token": "Secret_Token-1"}, AT),
        signature="x-telegram-bot-api-secret-token",
        covers=(),
        key="10001",
        type="message",
        other_secret=b"Other_Token-1",
    )


PUBLISHED_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62g"
    "w+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
)
PRIVATE_KEY = ec.derive_private_key(46, ec.SECP256R1())


def private_key(number: int = 46) -> str:
    """Return a private key in the form in which a source's secret may have it."""
    key = ec.derive_private_key(number, ec.SECP256R1())
    der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return b64encode(der).decode()


def public_key(number: int = 46) -> str:
    """Return the verification key as SendGrid shows it."""
    key = ec.derive_private_key(number, ec.SECP256R1()).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b64encode(der).decode()


def _sendgrid() -> Iterator[Sample]:
    body = b'[{"email":"a@example.com","event":"open","sg_event_id":"e1","timestamp":1}]\r\n'
    message = str(AT).encode() + body
    signature = b64encode(PRIVATE_KEY.sign(message, ec.ECDSA(hashes.SHA256()))).decode()
    yield _signed_by_sendgrid("cryptography (PyPI)", private_key(), body, str(AT), signature, "e1")
    published = (
        b'[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address",'
        b'"sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",'
        b'"sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9'
        b'.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>",'
        b'"timestamp":1600112492}]\r\n'
    )
    yield _signed_by_sendgrid(
        "the published vector",
        PUBLISHED_KEY,
        published,
        "1600112502",
        "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLt"
        "EZtM=",
        "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",
    )


def _signed_by_sendgrid(
    made_by: str, secret: str, body: bytes, time: str, signature: str, key: str
) -> Sample:
    prefix = "X-Twilio-Email-Event-Webhook"
    headers = {f"{prefix}-Signature": signature, f"{prefix}-Timestamp": time, **JSON}
    return Sample(
        preset="sendgrid",
        made_by=made_by,
        settings=settings(secret),
        request=request(body, headers, int(time)),
        signature="x-twilio-email-event-webhook-signature",
        time="x-twilio-email-event-webhook-timestamp",
        timed=True,
        key=key,
        type=json.loads(body)[0]["event"],
        can_sign=secret != PUBLISHED_KEY,
        other_secret=public_key(47).encode(),
    )


def _mailgun() -> Iterator[Sample]:
    signed = {
        "timestamp": "1529006854",
        "token": "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0",
        "signature": "2df0e54f503d31abdc1519117a730ae38748e41e86f9ae25431dbd26059468af",
    }
    event = {"event-data": {"event": "delivered", "id": "e"}}
    yield _signed_by_mailgun(
        "for an event",
        signed,
        lambda fields: (json.dumps({"signature": fields, **event}).encode(), "application/json"),
        "delivered",
    )
    yield _signed_by_mailgun(
        "for a route",
        signed,
        lambda fields: (urlencode({"subject": "hi", **fields}, errors="replace").encode(), FORM),
    )
    yield _signed_by_mailgun("for a route with files", signed, _multipart)


def _multipart(fields: dict[str, str]) -> tuple[bytes, str]:
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        + value.encode("utf-8", "replace")
        for name, value in fields.items()
    ]
    return b"\r\n".join([*parts, b"--b--\r\n"]), "multipart/form-data; boundary=b"


def _signed_by_mailgun(
    what: str, signed: dict[str, str], encode: Encode, event_type: str | None = None
) -> Sample:
    def make(fields: dict[str, str]) -> InboundRequest:
        body, content_type = encode(fields)
        return request(body, {"Content-Type": content_type}, int(signed["timestamp"]))

    mutations = [
        (f"{name} {change}", make({**signed, name: text}))
        for name, value in signed.items()
        for change, text in changed_texts(value)
    ]
    missing = [
        (f"{name} missing", make({key: text for key, text in signed.items() if key != name}))
        for name in signed
    ]
    return Sample(
        preset="mailgun",
        made_by=f"the algorithm of mailgun (PyPI), {what}",
        settings=settings("key-test"),
        request=make(signed),
        signature=None,
        timed=True,
        covers=(),
        covered=_mailgun_fields,
        key=signed["token"],
        type=event_type,
        mutations=(*mutations, *missing),
    )


def _mailgun_fields(sent: InboundRequest) -> list[object]:
    document = Delivery(sent).document
    prefix = "/signature" if isinstance(find(document, "/signature"), dict) else ""
    return [find(document, f"{prefix}/{name}") for name in ("timestamp", "token", "signature")]


def _paddle() -> Sample:
    body = '{"event_id":"evt_1","event_type":"transaction.paid","notification_id":"ntf_1"}'
    secret = "pdl_ntfset_x"
    digest = PaddleSignature.calculate_hmac(secret, f"{AT}:{body}".encode()).hexdigest()
    return Sample(
        preset="paddle",
        made_by="paddle-python-sdk (PyPI)",
        settings=settings(secret),
        request=request(body.encode(), {"Paddle-Signature": f"ts={AT};h1={digest}"}, AT),
        signature="paddle-signature",
        timed=True,
        key="evt_1",
        type="transaction.paid",
    )


def _linear() -> Sample:
    body = b'{"action":"create","type":"Issue","webhookTimestamp":1676056940508,"webhookId":"w1"}'
    signature = "d694841c252b301c9f8e0e5b7949e3838509673cae6bbe9041a6412296dc467f"
    headers = {"Linear-Signature": signature, "Linear-Delivery": "d-1"}
    return Sample(
        preset="linear",
        made_by="the algorithm of @linear/sdk (npm)",
        settings=settings("SECRET"),
        request=request(body, headers, 1676056940.508),
        signature="linear-signature",
        timed=True,
        key="d-1",
        type="Issue.create",
    )


def _zoom() -> Sample:
    body = (
        '{"event":"meeting.started","payload":{"account_id":"A","object":{"id":"1","topic":'
        '"Olá 😀"}},"event_ts":1720547519023}'
    )
    signature = "v0=91c46817a9484ab911736e729c3e46f6be4c9a6fe8c389cf992904197a58fee5"
    headers = {"x-zm-signature": signature, "x-zm-request-timestamp": "1720547519"}
    return Sample(
        preset="zoom",
        made_by="the algorithm of Zoom's webhook sample",
        settings=settings("zoomsecret"),
        request=request(body.encode(), headers, 1720547519),
        signature="x-zm-signature",
        time="x-zm-request-timestamp",
        timed=True,
        type="meeting.started",
    )


def _msgraph() -> Sample:
    def make(**fields: object) -> InboundRequest:
        item = {"id": "n1", "changeType": "updated", "resource": "me/messages/1", **fields}
        return request(json.dumps({"value": [item]}).encode(), JSON, AT)

    state = "Client-State-1"
    others: tuple[object, ...] = (None, True, 1, [state], {"clientState": state})
    return Sample(
        preset="msgraph",
        made_by="the documentation of Microsoft Graph",
        settings=settings(state),
        request=make(clientState=state),
        signature=None,
        covers=(),
        covered=lambda sent: find(Delivery(sent).document, "/value/0/clientState"),
        key="n1",
        type="updated",
        mutations=(
            ("clientState missing", make()),
            *((f"clientState as {other!r}", make(clientState=other)) for other in others),
            *((what, make(clientState=text)) for what, text in changed_texts(state)),
        ),
    )
