"""Presets with vectors that are published, and with keys that keep different events apart.

Twilio, Meta, Telegram, SendGrid, Mailgun, Paddle, Linear, Zoom and Microsoft Graph.
"""

import hmac
import json
import random
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from ackbox.errors import SettingError
from ackbox.model import Accepted, Envelope, InboundRequest, RefusalReason
from ackbox.sources.declaration import declare
from ackbox.sources.presets import PRESETS
from ackbox.sources.schemes import Scheme, Verification
from ackbox.sources.webhook import SignedWebhook
from support.sources.by_senders import private_key, public_key, settings
from support.sources.samples import request, with_header

AT = 1_790_000_000
SECRET = "secret"
FORM = "application/x-www-form-urlencoded"
TWILIO_URL = "https://mycompany.com/myapp.php"
QUERY = "?foo=1&bar=2"


def scheme(preset: str, *secrets: str, public_url: str | None = None, **options: str) -> Scheme:
    return PRESETS[preset].scheme(settings(*secrets, public_url=public_url, **options))


def make_source(preset: str, secret: str = SECRET) -> SignedWebhook:
    words = {"preset": preset, "secret": "env:S", "public_url": "https://example.com/in/x"}
    declaration = declare("x", words, "test")
    return SignedWebhook(declaration, (secret.encode(),), random.Random(0).getrandbits)


def receive(
    preset: str, body: bytes, content_type: str = "application/json", secret: str = SECRET
) -> Accepted:
    """Return what a source makes of a delivery that is signed as the sender would."""
    source = make_source(preset, secret)
    sent = request(body, {"Content-Type": content_type}, AT)
    return accepted_by(source, source.scheme.sign(sent))


def accepted_by(source: SignedWebhook, sent: InboundRequest) -> Accepted:
    result = source.receive(sent)
    assert isinstance(result, Accepted)
    return result


def keys(accepted: Accepted) -> list[str]:
    return [envelope.idempotency_key for envelope in accepted.envelopes if envelope.parent_id]


# Twilio


def form(body: bytes, signature: str, url: str = QUERY) -> InboundRequest:
    headers = {"X-Twilio-Signature": signature, "Content-Type": FORM}
    return request(body, headers, AT, url="/in/twilio" + url)


FIELDS = {
    "CallSid": "CA1234567890ABCDE",
    "Digits": "1234",
    "From": "+14158675309",
    "To": "+18005551212",
    "Caller": "+14158675309",
}


@pytest.mark.parametrize(
    ("body", "signature", "hash_name"),
    [
        (urlencode(FIELDS), "RSOYDt4T1cUTdK1PDd93/VVr8B8=", "sha1"),
        (urlencode(FIELDS), "kvajT1Ptam85bY51eRf/AJRuM3w=", "sha1"),
        (
            "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234",
            "IK+Dwps556ElfBT0I3Rgjkr1wJU=",
            "sha1",
        ),
        (urlencode(FIELDS), "033hgUJA9M/hXIZsYjwkerEP/DBm35nEri5FhCYjA5s=", "sha256"),
    ],
)
def test_the_vectors_of_twilio_are_verified(body: str, signature: str, hash_name: str) -> None:
    twilio = scheme("twilio", "12345", public_url=TWILIO_URL, hash=hash_name)
    assert twilio.verify(form(body.encode(), signature)) is Verification.VERIFIED


def test_the_vector_of_twilio_for_json_is_verified() -> None:
    digest = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
    sent = replace(
        form(b'{"property": "value", "boolean": true}', "a9nBmqA0ju/hNViExpshrM61xv4="),
        url=f"/in/twilio{QUERY}&bodySHA256={digest}",
    )
    twilio = scheme("twilio", "12345", public_url=TWILIO_URL)
    assert twilio.verify(with_header(sent, "content-type", "application/json")) == "verified"
    # The hash covers the body of a form too: Twilio's own library does not look at it then.
    assert twilio.verify(replace(sent, body=b"Body=other")) is Verification.MALFORMED


@pytest.mark.parametrize(
    "public_url",
    [TWILIO_URL, "https://mycompany.com:443/myapp.php", f"{TWILIO_URL}?x=1", f"{TWILIO_URL}#rc=2"],
)
def test_the_standard_port_and_the_query_of_the_public_url_do_not_matter(public_url: str) -> None:
    twilio = scheme("twilio", "12345", public_url=public_url)
    for signature in ("RSOYDt4T1cUTdK1PDd93/VVr8B8=", "kvajT1Ptam85bY51eRf/AJRuM3w="):
        assert twilio.verify(form(urlencode(FIELDS).encode(), signature)) == "verified"


def test_a_port_that_is_not_the_standard_one_is_signed_as_it_is() -> None:
    url = "https://user:pass@[2001:db8::1]:8443/x"
    twilio = scheme("twilio", "12345", public_url=url)
    signature = b64encode(hmac.digest(b"12345", f"{url}?a=1".encode(), "sha1")).decode()
    assert twilio.verify(form(b"", signature, "?a=1")) is Verification.VERIFIED


def test_a_body_that_the_signature_of_twilio_does_not_cover_is_refused() -> None:
    # The signature of an empty request, sent with a JSON body.
    url = b"https://mycompany.com/myapp.php?foo=1&bar=2"
    sent = form(b"", b64encode(hmac.digest(b"12345", url, "sha1")).decode())
    twilio = scheme("twilio", "12345", public_url=TWILIO_URL)
    assert twilio.verify(sent) is Verification.VERIFIED
    for content_type in ("application/json", "text/plain", ""):
        other = with_header(replace(sent, body=b"{}"), "content-type", content_type)
        assert twilio.verify(other) is Verification.MALFORMED


def test_a_request_does_not_choose_the_hash_of_twilio() -> None:
    twilio = scheme("twilio", "12345", public_url=TWILIO_URL)
    sent = form(urlencode(FIELDS).encode(), "033hgUJA9M/hXIZsYjwkerEP/DBm35nEri5FhCYjA5s=")
    settings_header = "key=1,algorithm=HMAC_SHA256"
    sent = with_header(sent, "x-twilio-webhooks-signature-settings", settings_header)
    assert twilio.verify(sent) is Verification.BAD_SIGNATURE


@pytest.mark.parametrize("words", [{"hash": "md5"}, {"public_url": "https://[x/"}])
def test_a_wrong_word_for_twilio_is_a_setting_error(words: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(words))} must be"):
        scheme("twilio", "12345", **words)


def twilio_event(fields: str) -> Envelope:
    return receive("twilio", fields.encode(), FORM).envelopes[0]


@pytest.mark.parametrize(
    ("fields", "key", "kind"),
    [
        ("MessageSid=SM1&SmsStatus=received&Body=hi", "SM1", "message.received"),
        ("MessageSid=SM1&MessageStatus=sent&SmsStatus=sent", "SM1.sent", "message.sent"),
        ("MessageSid=SM1&MessageStatus=read", "SM1.read", "message.read"),
    ],
)
def test_each_state_of_a_message_is_an_event_of_its_own(fields: str, key: str, kind: str) -> None:
    envelope = twilio_event(fields)
    assert (envelope.idempotency_key, envelope.event_type) == (key, kind)


def test_the_fields_of_a_call_in_another_order_are_the_same_event() -> None:  # F47
    first, second = twilio_event("CallSid=CA1&Digits=1"), twilio_event("Digits=%31&CallSid=CA1")
    assert first.idempotency_key == second.idempotency_key
    assert twilio_event("CallSid=CA1&Digits=2").idempotency_key != first.idempotency_key


@pytest.mark.parametrize(
    ("url", "moved"),
    [
        ("?a=1", "Body=hiMessageSidSM1SmsStatusreceived"),
        ("?a=1", "Body=hi&MessageSid=SM1SmsStatusreceived"),
        ("?a=1", "Body=h&iMessageSid=SM1SmsStatusreceived"),
        ("?a=1Bodyhi", "MessageSid=SM1&SmsStatus=received"),
        ("?a=1BodyhiMessageSidSM1SmsStatusreceived", ""),
    ],
)
def test_a_form_with_moved_borders_has_the_fingerprint_of_the_first(  # F47
    url: str, moved: str
) -> None:
    source = make_source("twilio")
    sent = form(b"Body=hi&MessageSid=SM1&SmsStatus=received", "", "?a=1")
    signed = source.scheme.sign(replace(sent, headers=sent.headers[1:]))
    captured = replace(signed, url="/in/twilio" + url, body=moved.encode())
    (first,), (second,) = (accepted_by(source, each).envelopes for each in (signed, captured))
    assert first.idempotency_key == "SM1"
    assert first.fingerprint == second.fingerprint is not None
    assert twilio_event("MessageSid=SM1").fingerprint != first.fingerprint


# Meta


def meta(*entries: dict[str, object], about: str = "page") -> Accepted:
    return receive("meta", json.dumps({"object": about, "entry": entries}).encode())


def test_each_message_and_each_state_of_a_message_of_whatsapp_is_an_event() -> None:
    value: dict[str, list[object]] = {
        "contacts": [{"wa_id": "1556"}],
        "messages": [
            {"id": "wamid.A", "timestamp": "1697043223", "type": "text"},
            {"id": "wamid.B", "timestamp": "1697043224", "type": "image"},
        ],
        "statuses": [
            {"id": "wamid.C", "status": "sent", "recipient_id": "1", "timestamp": "1697043230"},
            {"id": "wamid.C", "status": "read", "recipient_id": "1", "timestamp": "1697043231"},
        ],
    }
    account = {"field": "account_update", "value": {"event": "VERIFIED_ACCOUNT"}}
    accepted = meta(
        {"id": "WABA", "changes": [{"field": "messages", "value": value}, account]},
        about="whatsapp_business_account",
    )
    parent, *items = accepted.envelopes
    assert parent.event_type == "delivery"
    assert keys(accepted)[:4] == ["wamid.A", "wamid.B", "wamid.C.sent.1", "wamid.C.read.1"]
    assert [item.event_type.partition(".")[2] for item in items] == [
        *("messages", "messages", "statuses", "statuses", "account_update")
    ]
    assert items[0].source_emitted_at == datetime.fromtimestamp(1697043223, UTC)
    [change] = json.loads(items[1].payload)["entry"][0]["changes"]
    assert change["value"] == {**value, "messages": [value["messages"][1]], "statuses": []}


def test_each_event_of_messenger_has_a_key_of_its_own() -> None:
    texts: list[dict[str, object]] = [
        {"message": {"mid": "m_1", "text": "hi"}},
        {"message": {"mid": "m_1", "is_deleted": True}},
        {"message_edit": {"mid": "m_1", "text": "ho"}},
        {"reaction": {"mid": "m_1", "reaction": "love"}},
        {"read": {"watermark": 1458668856253}},
    ]
    items = [{"sender": {"id": "1"}, "timestamp": 1458668856463, **text} for text in texts]
    accepted = meta({"id": "1", "messaging": items[:3]}, {"id": "1", "messaging": items[3:]})
    assert keys(accepted)[:2] == ["m_1", "m_1.deleted"]
    assert len(set(keys(accepted))) == 5
    assert [envelope.event_type for envelope in accepted.envelopes[1:]] == [
        *("page.message", "page.message", "page.message_edit", "page.reaction", "page.read")
    ]
    assert accepted.envelopes[1].source_emitted_at == datetime(
        2016, 3, 22, 17, 47, 36, 463000, tzinfo=UTC
    )


def test_an_item_that_meta_repeats_in_another_delivery_has_the_same_key() -> None:
    first, second = {"message": {"mid": "m_1"}}, {"message": {"mid": "m_2"}}
    alone = meta({"id": "1", "time": 1, "messaging": [second]})
    together = meta({"id": "1", "time": 2, "messaging": [first, second]})
    assert alone.envelopes[0].idempotency_key == keys(together)[1] == "m_2"


# SendGrid


def test_a_delivery_of_ten_with_one_bad_item_is_nine_events_and_one_refusal() -> None:
    events = [{"sg_event_id": f"e{number}", "event": "open"} for number in range(10)]
    bodies = [json.dumps(event).encode() for event in events]
    bodies[4] = b'"bad"'
    body = b"[" + b",\r\n".join(bodies) + b"]\r\n"
    accepted = receive("sendgrid", body, secret=private_key())
    parent, *items = accepted.envelopes
    assert parent.payload == body
    assert [item.payload for item in items] == [
        b"[" + item + b"]\r\n" for number, item in enumerate(bodies) if number != 4
    ]
    [bad] = accepted.rejected
    assert (bad.body, bad.reason) == (b'["bad"]\r\n', RefusalReason.UNREADABLE)


@pytest.mark.parametrize("key", ["", "%%%", "MFkw", b64encode(b"x" * 91).decode(), "key-test"])
def test_a_key_that_is_not_of_sendgrid_is_a_setting_error(key: str) -> None:
    with pytest.raises(SettingError, match="secret must"):
        scheme("sendgrid", key)


def test_the_public_key_of_sendgrid_cannot_sign() -> None:
    with pytest.raises(SettingError, match="only SendGrid can sign"):
        scheme("sendgrid", public_key()).sign(request(b"[]", {}, AT))


# Mailgun


def test_a_token_of_mailgun_is_the_key_whatever_the_body_says() -> None:  # F47
    mailgun = scheme("mailgun", "secret")
    event = b'{"event-data": {"event": "opened", "id": "e1", "timestamp": 1529006854.33}}'
    signed = mailgun.sign(request(event, {"Content-Type": "application/json"}, AT))
    forged = replace(signed, body=signed.body.replace(b"opened", b"failed"))
    assert mailgun.verify(forged) is Verification.VERIFIED
    results = [accepted_by(make_source("mailgun"), sent) for sent in (signed, forged)]
    assert key_of(results[0]) == key_of(results[1])


def key_of(accepted: Accepted) -> str:
    return accepted.envelopes[0].idempotency_key


def test_the_last_of_repeated_form_fields_is_that_of_mailgun() -> None:
    mailgun = scheme("mailgun", "secret")
    signed = mailgun.sign(request(b"", {"Content-Type": FORM}, AT))
    variables = b"token=mine&signature=mine&timestamp=1&"
    assert mailgun.verify(replace(signed, body=variables + signed.body)) == "verified"


# Paddle, Linear


def test_one_good_signature_of_paddle_is_enough() -> None:
    secret = "pdl_ntf_01hbpjmytsa32fhr36nqgc3kgb_WvRO0eL4Bj9rgYYIBZY6wZhG4EHy9jzh"
    digest = "d96299976a6eb066f484d7fde011ac56fc32b38fc9940bc419d6e537fdc6ef02"
    header = f"ts=1696195954;h1=dummy;h1={digest}"
    for text in (header, header.replace(";", "; "), f"{header};h2=new"):
        sent = request(b"hello-world", {"Paddle-Signature": text}, 1696195954)
        assert scheme("paddle", secret).verify(sent) is Verification.VERIFIED


@pytest.mark.parametrize(
    "time", ["null", '"1790000000000"', "1790000000000.5", "true", "-1", "1e400"]
)
def test_a_time_of_linear_that_is_no_whole_number_is_refused(time: str) -> None:
    body = f'{{"webhookTimestamp": {time}}}'.encode()
    digest = hmac.new(b"secret", body, "sha256").hexdigest()
    sent = request(body, {"Linear-Signature": digest}, AT)
    assert scheme("linear", "secret").verify(sent) is Verification.BAD_TIME


# Telegram


def test_an_update_of_telegram_has_its_number_as_key_and_sequence() -> None:
    body = b'{"update_id":10001,"edited_message":{"message_id":7,"edit_date":1700000000}}'
    [envelope] = receive("telegram", body).envelopes
    assert (envelope.idempotency_key, envelope.source_sequence) == ("10001", 10001)
    assert envelope.event_type == "edited_message"
    assert envelope.source_emitted_at == datetime.fromtimestamp(1700000000, UTC)


@pytest.mark.parametrize("token", ["a b", "a:b", "\u00e9", "a" * 257])
def test_a_token_that_telegram_does_not_take_is_a_setting_error(token: str) -> None:
    with pytest.raises(SettingError, match="secret must be the secret_token of setWebhook"):
        scheme("telegram", token)


# Microsoft Graph


def graph(*items: dict[str, object], at: datetime | None = None) -> Accepted:
    body = json.dumps({"value": items}).encode()
    sent = request(body, {"Content-Type": "application/json"}, AT)
    return accepted_by(make_source("msgraph"), replace(sent, received_at=at or sent.received_at))


GOOD: dict[str, object] = {"clientState": "secret", "changeType": "created"}


def test_an_item_of_graph_with_a_wrong_state_does_not_fail_the_rest() -> None:
    accepted = graph(
        {"id": "1", **GOOD},
        {"id": "2", "clientState": "wrong"},
        {"id": "3"},
        {"id": "4", "clientState": "secret", "lifecycleEvent": "missed"},
    )
    assert keys(accepted) == ["1", "4"]
    assert [item.event_type for item in accepted.envelopes[1:]] == ["created", "missed"]
    assert [(item.reason, item.detail) for item in accepted.rejected] == [
        (RefusalReason.BAD_SIGNATURE, "item 2 of 4 has a wrong signature"),
        (RefusalReason.UNSIGNED, "item 3 of 4 is not signed"),
    ]


def test_the_same_notification_without_an_id_is_a_new_event_a_minute_later() -> None:
    moment = datetime(2026, 11, 16, 12, 30, 5, tzinfo=UTC)
    seconds, later = moment + timedelta(seconds=50), moment + timedelta(minutes=1)
    first, repeated, second = (graph(GOOD, at=at) for at in (moment, seconds, later))
    assert key_of(first) == key_of(repeated) != key_of(second)
