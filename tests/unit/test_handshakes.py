"""Handshakes: a sender checks an endpoint, and nobody can use the response to sign (item 6)."""

import hmac
import json
import random
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ackbox.model import Accepted, Handshake, InboundRequest, Refusal, RefusalReason
from ackbox.sources.declaration import declare
from ackbox.sources.preset import SchemeSettings
from ackbox.sources.presets.zoom import answer_url_validation
from ackbox.sources.webhook import SignedWebhook

NOW = datetime(2026, 11, 16, tzinfo=UTC)
SECRET = b"the-secret"
CHALLENGE = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": "right"}


def source(preset: str, *secrets: bytes, **words: str) -> SignedWebhook:
    table = {"preset": preset, "secret": "env:SECRET", **words}
    references = {"env:TOKEN": b"right"}.__getitem__
    declaration = declare("sender", table, "ackbox.toml").with_secret_options(references)
    return SignedWebhook(declaration, secrets or (SECRET,), random.Random(0).getrandbits)


def get(query: str) -> InboundRequest:
    return InboundRequest("GET", f"/in/sender?{query}", (), b"", NOW)


def post(document: object, query: str = "") -> InboundRequest:
    headers = (("content-type", "application/json"),)
    return InboundRequest("POST", f"/in/sender{query}", headers, json.dumps(document).encode(), NOW)


def refusal_of(result: Accepted | Refusal | Handshake) -> tuple[int, RefusalReason]:
    assert isinstance(result, Refusal)
    return result.status, result.reason


# Meta: the verify token is compared; the response repeats the challenge and contains no secret.


def meta() -> SignedWebhook:
    return source("meta", verify_token="env:TOKEN")


def test_meta_gets_its_challenge_for_the_right_verify_token() -> None:
    assert meta().receive(get(urlencode(CHALLENGE))) == Handshake(b"1158201444")


@pytest.mark.parametrize(
    "change",
    [
        {"hub.verify_token": "wrong"},
        {"hub.verify_token": ""},
        {"hub.verify_token": "right "},
        {"hub.verify_token": "r\u00efght"},
        {"hub.verify_token": ["right", "right"]},
        {"hub.verify_token": []},
        {"hub.verify_token": SECRET.decode()},
    ],
)
def test_meta_gets_no_challenge_without_the_verify_token(change: dict[str, object]) -> None:
    query = urlencode({**CHALLENGE, **change}, doseq=True)
    assert refusal_of(meta().receive(get(query))) == (403, RefusalReason.UNSIGNED)


def test_without_a_verify_token_in_the_table_no_token_is_right() -> None:
    for token in ("", "right"):
        result = source("meta").receive(get(urlencode({**CHALLENGE, "hub.verify_token": token})))
        assert refusal_of(result) == (403, RefusalReason.UNSIGNED)


@pytest.mark.parametrize("challenge", ["", "<script>", "a b", "a\r\nb", "1" * 300, ["1", "2"], []])
def test_meta_gets_no_challenge_that_is_not_a_plain_word(challenge: object) -> None:
    query = urlencode({**CHALLENGE, "hub.challenge": challenge}, doseq=True)
    assert refusal_of(meta().receive(get(query))) == (400, RefusalReason.MALFORMED)


def test_the_challenge_of_meta_is_a_get() -> None:
    sent = replace(get(urlencode(CHALLENGE)), method="POST")
    assert refusal_of(meta().receive(sent)) == (401, RefusalReason.UNSIGNED)
    sent = get(urlencode({**CHALLENGE, "hub.mode": "other"}))
    assert refusal_of(meta().receive(sent)) == (405, RefusalReason.NOT_SUPPORTED)


# Slack: the request is signed; the response repeats what Slack signed and contains no secret.


def test_slack_gets_its_challenge_if_it_signed_the_request() -> None:
    slack = source("slack")
    sent = post(
        {"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkv"}
    )
    result = slack.receive(slack.scheme.sign(sent))
    assert result == Handshake(b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkv")


def test_slack_gets_no_challenge_without_a_signature() -> None:
    sent = post({"type": "url_verification", "challenge": "x"})
    assert refusal_of(source("slack").receive(sent)) == (401, RefusalReason.UNSIGNED)
    forged = source("slack", b"other").scheme.sign(sent)
    assert refusal_of(source("slack").receive(forged)) == (401, RefusalReason.BAD_SIGNATURE)


# Zoom: the response is an HMAC with the secret, so that the request must be signed, and no token
# can have the form of the bytes that Zoom signs.


def validation(token: object) -> InboundRequest:
    return post({"event": "endpoint.url_validation", "payload": {"plainToken": token}})


def test_zoom_gets_the_hmac_of_its_token() -> None:
    zoom = source("zoom", b"zoomsecret")
    result = zoom.receive(zoom.scheme.sign(validation("qgg8vlvZRS6UYooatFL8Aw")))
    assert isinstance(result, Handshake)
    assert result.content_type == "application/json"
    assert json.loads(result.body) == {
        "plainToken": "qgg8vlvZRS6UYooatFL8Aw",
        "encryptedToken": "83b2a60d4bbe49dc93763ed9e727a9a7690cbe4c1f8bb0adc0ffccd09ecb1384",
    }


@pytest.mark.parametrize("signer", [b"new", b"old"])
def test_zoom_gets_the_hmac_of_the_secret_with_which_it_signed(signer: bytes) -> None:
    zoom = source("zoom", b"new", b"old")
    result = zoom.receive(source("zoom", signer).scheme.sign(validation("token")))
    assert isinstance(result, Handshake)
    expected = hmac.new(signer, b"token", "sha256").hexdigest()
    assert json.loads(result.body)["encryptedToken"] == expected


def test_zoom_gets_nothing_without_a_signature() -> None:
    zoom = source("zoom")
    assert refusal_of(zoom.receive(validation("token"))) == (401, RefusalReason.UNSIGNED)
    forged = source("zoom", b"other").scheme.sign(validation("token"))
    assert refusal_of(zoom.receive(forged)) == (401, RefusalReason.BAD_SIGNATURE)


def test_zooms_answer_checks_the_signature_itself() -> None:
    result = answer_url_validation(validation("token"), SchemeSettings((SECRET,)))
    assert result is not None
    assert refusal_of(result) == (401, RefusalReason.UNSIGNED)


@pytest.mark.parametrize(
    "token", ["v0:1790000000:{}", "a:b", "", "a" * 300, "\u00e9", "a b", None, 7, {"a": 1}]
)
def test_zoom_gets_no_hmac_of_a_text_that_could_be_a_signed_delivery(token: object) -> None:
    zoom = source("zoom")
    result = zoom.receive(zoom.scheme.sign(validation(token)))
    assert refusal_of(result) == (400, RefusalReason.UNREADABLE)


@given(st.text(max_size=80))
def test_no_answer_to_zoom_is_the_signature_of_a_delivery(body: str) -> None:
    zoom = source("zoom")
    signed = zoom.scheme.sign(validation(f"v0:1790000000:{body}"))
    assert not isinstance(zoom.receive(signed), Handshake)


# Microsoft Graph: anybody may ask; the response repeats the token, and contains no secret.


def test_graph_gets_its_validation_token_decoded() -> None:
    token = "Validation: Testing client application reachability. Request-Id: 5f+a/1="
    sent = replace(post({}), url="/in/sender?" + urlencode({"x": 1, "validationToken": token}))
    assert source("msgraph").receive(sent) == Handshake(token.encode())


@pytest.mark.parametrize("token", ["", "a\r\nSet-Cookie: b", "\u00e9", "a" * 3000, ["a", "b"]])
def test_graph_gets_no_token_that_is_not_plain_text(token: object) -> None:
    query = urlencode({"validationToken": token}, doseq=True)
    result = source("msgraph").receive(post({}, f"?{query}"))
    assert refusal_of(result) == (400, RefusalReason.MALFORMED)


def test_a_validation_token_lets_no_notification_in() -> None:
    sent = post({"value": [{"clientState": "wrong"}]}, "?validationToken=t")
    assert source("msgraph").receive(sent) == Handshake(b"t")
    assert refusal_of(source("msgraph").receive(replace(sent, url="/in/sender"))) == (
        401,
        RefusalReason.BAD_SIGNATURE,
    )


# Every handshake: whatever is sent, no response contains a secret or a signature made with it.


@pytest.mark.parametrize("preset", ["meta", "slack", "msgraph", "zoom"])
@pytest.mark.parametrize("query", [urlencode(CHALLENGE), "validationToken=abc", ""])
@pytest.mark.parametrize(
    "document",
    [
        {"type": "url_verification", "challenge": "abc"},
        {"event": "endpoint.url_validation", "payload": {"plainToken": "abc"}},
    ],
)
def test_no_unsigned_request_gets_a_response_that_a_secret_went_into(
    preset: str, query: str, document: object
) -> None:
    words = {"verify_token": "env:TOKEN"} if preset == "meta" else {}
    for method in ("GET", "POST"):
        sent = replace(post(document, f"?{query}"), method=method)
        results = [source(preset, key, **words).receive(sent) for key in (SECRET, b"another")]
        assert results[0] == results[1]
        assert not isinstance(results[0], Accepted)
