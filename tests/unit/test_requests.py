"""A request keeps every header that was sent."""

from datetime import UTC, datetime

from ackbox.model import InboundRequest

REQUEST = InboundRequest(
    "POST", "/in/x", (("a", "1"), ("b", "2"), ("a", "3")), b"", datetime(2026, 1, 1, tzinfo=UTC)
)


def test_a_repeated_header_stays_repeated() -> None:
    assert REQUEST.headers_named("a") == ["1", "3"]
    assert REQUEST.header("a") == "1"


def test_a_missing_header_is_none() -> None:
    assert REQUEST.headers_named("c") == []
    assert REQUEST.header("c") is None
