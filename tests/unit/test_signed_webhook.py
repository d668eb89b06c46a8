"""A declared source turns a verified request into an event, and refuses every other request."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

import pytest

from ackbox.model import (
    Accepted,
    Envelope,
    Handshake,
    InboundRequest,
    OutcomeName,
    Refusal,
    RefusalReason,
)
from ackbox.sources.declaration import declare
from ackbox.sources.webhook import SignedWebhook
from support.http.signed_preset import PRESETS

NOW = datetime(2026, 11, 16, tzinfo=UTC)
BODY = b'{"type": "order.paid", "number": 7, "time": "2026-11-16T01:02:03Z"}'


def webhook(**words: object) -> SignedWebhook:
    table = {"preset": "secret", "secrets": ["env:NEW", "env:OLD"], **words}
    source = declare("shop", table, "ackbox.toml", PRESETS)
    return SignedWebhook(source, (b"new", b"old"), random.Random(0).getrandbits)


def request(
    body: bytes = BODY, *, key: str | None = "new", method: str = "POST", **headers: str
) -> InboundRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = named if key is None else {"x-secret": key, **named}
    return InboundRequest(method, "/in/shop", tuple(sent.items()), body, NOW, "request-1")


def accept(source: SignedWebhook, given: InboundRequest) -> Envelope:
    result = source.receive(given)
    assert isinstance(result, Accepted)
    (envelope,) = result.envelopes
    return envelope


def test_a_verified_request_becomes_an_event_with_its_exact_bytes() -> None:
    given = request(x_id="id-1", content_type="application/json", x_topic="orders")
    envelope = accept(webhook(), given)
    assert envelope.source == "shop"
    assert envelope.idempotency_key == "id-1"
    assert envelope.event_type == "order.paid"
    assert envelope.source_sequence == 7
    assert envelope.source_emitted_at == datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)
    assert envelope.payload == BODY
    assert envelope.verified_by == "secret"
    assert envelope.request_id == "request-1"
    assert envelope.content_type == "application/json"
    kept = {"content-type": "application/json", "x-topic": "orders"}
    assert json.loads(envelope.headers or "") == kept


def test_a_key_that_the_sender_does_not_sign_needs_a_fingerprint() -> None:  # F47
    unsigned = {"unsigned": replace(PRESETS["secret"], fingerprint=True), "none": PRESETS["none"]}
    table = {"preset": "unsigned", "secret": "env:NEW"}
    source = declare("shop", table, "ackbox.toml", unsigned)
    event = accept(SignedWebhook(source, (b"new",), random.getrandbits), request())
    assert event.fingerprint == event.payload_sha256
    assert accept(webhook(), request()).fingerprint is None


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 100_000, b'"\\ud800"', BODY])
def test_without_a_key_the_hash_of_the_body_is_the_key(body: bytes) -> None:
    envelope = accept(webhook(), request(body))
    assert envelope.idempotency_key == sha256(body).hexdigest()
    assert envelope.payload == body
    assert envelope.content_type == "application/octet-stream"


def test_a_field_of_the_table_wins_over_the_preset() -> None:
    source = webhook(key="/number", lane="/type", type="X-Kind")
    envelope = accept(source, request(x_id="id-1", x_kind="kind"))
    assert (envelope.idempotency_key, envelope.lane) == ("7", "order.paid")
    assert envelope.event_type == "kind"


@pytest.mark.parametrize("kind", ["x" * 256, "a\x01b"])
def test_a_type_that_cannot_be_one_does_not_cost_the_event(kind: str) -> None:
    envelope = accept(webhook(type="X-Kind"), request(x_kind=kind))
    assert envelope.event_type == "webhook"


def test_every_secret_of_a_rotation_is_accepted() -> None:
    keys = [accept(webhook(), request(key=key, x_id=key)) for key in ("new", "old")]
    assert [envelope.idempotency_key for envelope in keys] == ["new", "old"]


@pytest.mark.parametrize(
    ("secret", "reason", "keep"),
    [
        (None, RefusalReason.UNSIGNED, False),
        ("wrong", RefusalReason.BAD_SIGNATURE, True),
        ("stale", RefusalReason.BAD_TIME, True),
    ],
)
def test_a_request_that_fails_is_refused_and_kept_if_it_was_signed(
    secret: str | None, reason: RefusalReason, keep: bool
) -> None:  # F46
    refusal = webhook().receive(request(key=secret))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason, refusal.keep) == (401, reason, keep)
    assert "wrong" not in refusal.detail


def test_repeated_headers_that_are_kept_are_joined() -> None:
    headers = (("x-secret", "new"), ("x-topic", "a"), ("x-topic", "b"), ("cookie", "c"))
    envelope = accept(webhook(), InboundRequest("POST", "/in/shop", headers, b"", NOW))
    assert json.loads(envelope.headers or "") == {"x-topic": "a, b"}


def test_get_is_for_handshakes_only() -> None:
    hello = InboundRequest("GET", "/in/shop?hello", (), b"", NOW)
    assert webhook().receive(hello) == Handshake(b"hello")
    refusal = webhook().receive(request(method="GET"))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.keep) == (405, False)


ITEMS = b'{"n":1,"items":[{"id":"a","type":"paid"},{"id":"b"},7]}'


def test_a_delivery_with_several_events_is_the_parent_of_its_items() -> None:
    source = webhook(split="/items", key="/items/0/id", type="/items/0/type")
    result = source.receive(request(ITEMS, x_id="id-1"))
    assert isinstance(result, Accepted)
    parent, *items = result.envelopes
    assert (parent.payload, parent.event_type, parent.parent_id) == (ITEMS, "delivery", None)
    assert parent.idempotency_key == sha256(ITEMS).hexdigest()
    assert [(item.idempotency_key, item.event_type) for item in items] == [
        ("a", "paid"),
        ("b", "webhook"),
    ]
    assert [item.payload for item in items] == [
        b'{"n":1,"items":[{"id":"a","type":"paid"}]}',
        b'{"n":1,"items":[{"id":"b"}]}',
    ]
    assert {item.parent_id for item in items} == {parent.id}
    assert (parent.outcome, {item.outcome for item in items}) == (OutcomeName.SPLIT, {None})
    assert [item.body for item in result.rejected] == [b'{"n":1,"items":[7]}']


def test_a_delivery_with_one_item_is_one_event() -> None:
    source = webhook(split="/items", key="/items/0/id")
    envelope = accept(source, request(b'{"items": [{"id":"a"}]}'))
    assert (envelope.idempotency_key, envelope.parent_id) == ("a", None)


def test_items_never_share_the_key_of_the_whole_delivery() -> None:
    result = webhook(split="/items").receive(request(ITEMS, x_id="id-1"))
    assert isinstance(result, Accepted)
    assert len({envelope.idempotency_key for envelope in result.envelopes}) == 3


def test_a_delivery_without_a_good_item_is_refused_and_kept() -> None:
    refusal = webhook(split="").receive(request(b"[1,2]"))
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason, refusal.keep) == (400, RefusalReason.UNREADABLE, True)
