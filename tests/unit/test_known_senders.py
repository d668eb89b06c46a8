"""A delivery of a real sender at `/webhooks` is told where it belongs."""

import pytest

from ackbox.errors import InvalidEvent
from ackbox.http.known_senders import PRESETS, name_sender
from ackbox.sources import presets


@pytest.mark.parametrize(("header", "preset"), PRESETS.items())
def test_a_known_sender_is_named_with_its_preset_and_path(header: bytes, preset: str) -> None:
    error = name_sender(InvalidEvent("payload is required"), {"headers": [(header, b"")]}, b"")
    assert f'declare [sources.{preset}] with preset = "{preset}"' in str(error)
    assert f"send to /in/{preset};" in str(error)


def test_every_sender_that_is_named_has_a_preset() -> None:
    assert set(PRESETS.values()) <= set(presets.PRESETS)


def test_a_delivery_of_github_is_not_one_of_meta() -> None:
    headers = [(b"x-hub-signature-256", b""), (b"x-github-event", b"push")]
    error = name_sender(InvalidEvent("x"), {"headers": headers}, b"")
    assert str(error).startswith("this is a delivery of github")


def test_an_unknown_field_hints_at_sources() -> None:
    error = InvalidEvent("Object contains unknown field `ref`")
    named = name_sender(error, {"headers": []}, b'{"ref": 1}')
    assert str(named).startswith("Object contains unknown field `ref`; if a sender such as GitHub")
    assert "documentation page how-to/sources" in str(named)


def test_another_mistake_stays_as_it_is() -> None:
    error = InvalidEvent("payload is required: any JSON value")
    assert name_sender(error, {"headers": []}, b"{}") is error


def test_a_mistake_in_an_envelope_of_ours_stays_as_it_is() -> None:
    error = InvalidEvent("Object contains unknown field `extra`")
    assert name_sender(error, {"headers": []}, b'{"payload": 1, "extra": 1}') is error
