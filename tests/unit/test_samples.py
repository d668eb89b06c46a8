"""A sample of a source is accepted by that source, for every preset."""

import random
from datetime import UTC, datetime

import pytest

from ackbox.model import Accepted
from ackbox.sources.declaration import declare
from ackbox.sources.presets import PRESETS
from ackbox.sources.webhook import SignedWebhook

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
WORDS = {
    "hmac": {"header": "X-Signature"},
    "header": {"header": "X-Our-Token"},
    "twilio": {"public_url": "https://example.com/in/it"},
}
WHSEC = b"whsec_c2VjcmV0c2VjcmV0c2VjcmV0"
SECRETS = {"basic": b"user:password", "standard-webhooks": WHSEC, "svix": WHSEC}
WITHOUT_PRIVATE_KEY = {"sendgrid"}
"""ackbox has the sender's public key only, and cannot sign."""


@pytest.mark.parametrize("name", sorted(set(PRESETS) - WITHOUT_PRIVATE_KEY))
def test_a_sample_of_every_preset_is_accepted(name: str) -> None:
    words: dict[str, object] = {"preset": name, "secret": "env:KEY", **WORDS.get(name, {})}
    secrets = (SECRETS.get(name, b"a-secret-of-24-characters"),)
    source = SignedWebhook(declare("it", words, "here"), secrets, random.Random(0).getrandbits)
    request = source.sample("/in/it", NOW, key="key-1", event_type="kind")
    result = source.receive(request)
    assert isinstance(result, Accepted), result


def test_the_fields_are_where_the_source_looks_for_them() -> None:
    words: dict[str, object] = {
        "preset": "hmac",
        "secret": "env:KEY",
        "header": "x-signature",
        "key": "/data/0/id",
        "type": "X-Kind",
    }
    source = SignedWebhook(declare("it", words, "here"), (b"a-secret",), random.getrandbits)
    request = source.sample("/in/it", NOW, key="key-1", event_type="order.paid")
    result = source.receive(request)
    assert isinstance(result, Accepted)
    (event,) = result.envelopes
    assert (event.idempotency_key, event.event_type) == ("key-1", "order.paid")
    assert event.payload == b'{"data":[{"id":"key-1"}]}'


def test_the_parts_of_a_joined_type_go_to_their_places() -> None:
    words: dict[str, object] = {"preset": "github", "secret": "env:KEY"}
    source = SignedWebhook(declare("it", words, "here"), (b"a-secret",), random.getrandbits)
    request = source.sample("/in/it", NOW, key="key-1", event_type="issues.opened")
    assert request.header("x-github-event") == "issues"
    assert request.body == b'{"action":"opened"}'
    given = source.sample("/in/it", NOW, key="key-1", event_type="push", body=b"\xff")
    assert given.body == b"\xff"
    assert isinstance(source.receive(given), Accepted)
