"""Ids, times, and checks of names and other fields."""

import uuid
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackbox.errors import InvalidEvent
from ackbox.model import (
    NAME_LIMIT,
    Envelope,
    Stats,
    Status,
    check_moment,
    check_name,
    check_sequence,
    fingerprint,
    from_text,
    new_event_id,
    seal,
    to_text,
)

UTC_TIMES = st.datetimes(timezones=st.just(UTC))
IN_UUID_RANGE = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
BITS = st.integers(0, 2**74 - 1)


@given(UTC_TIMES)
def test_a_time_as_text_has_one_width_and_comes_back_as_it_was(moment: datetime) -> None:  # W9
    text = to_text(moment)
    assert len(text) == len("YYYY-MM-DDTHH:MM:SS.ffffffZ")
    assert text.endswith("Z")
    assert from_text(text) == moment
    assert from_text(text).utcoffset() == timedelta(0)


@given(UTC_TIMES, UTC_TIMES)
def test_text_order_is_time_order(first: datetime, second: datetime) -> None:  # W9
    assert (to_text(first) < to_text(second)) == (first < second)


@given(IN_UUID_RANGE, BITS)
def test_an_id_is_a_uuid_of_version_7_with_its_time_and_its_random_bits(
    moment: datetime, bits: int
) -> None:  # W9
    event_id = new_event_id(moment, lambda n: bits)
    parsed = uuid.UUID(event_id)
    assert str(parsed) == event_id
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == int(moment.timestamp() * 1000)
    low = parsed.int & (2**62 - 1)
    high = (parsed.int >> 64) & 0xFFF
    assert high << 62 | low == bits


def test_an_id_has_74_random_bits() -> None:
    requested: list[int] = []

    def bits(n: int) -> int:
        requested.append(n)
        return 0

    new_event_id(datetime(2026, 1, 31, tzinfo=UTC), bits)
    assert requested == [74]


def test_ids_sort_by_the_millisecond() -> None:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    ids = [new_event_id(start + timedelta(milliseconds=n), lambda bits: 0) for n in range(5)]
    assert all(first < second for first, second in pairwise(ids))


@pytest.mark.parametrize(
    "name", ["a", "x" * NAME_LIMIT, "invoice.paid", "☃", "𝄞" * NAME_LIMIT, " ", "a b", "é"]
)
def test_a_name_may_be_any_text_up_to_its_limit(name: str) -> None:
    assert check_name("key", name) == name


BAD_NAMES = {
    "": "1 to 255",
    "x" * (NAME_LIMIT + 1): "not 256",
    "a\0b": r"U\+0000",
    "a\nb": r"U\+000A",
    "\x1f": r"U\+001F",
    "\x7f": r"U\+007F",
    "\x80": r"U\+0080",
    "\x9f": r"U\+009F",
    "\ud800": "surrogate",
    "ok\udfff": "surrogate",
}


@pytest.mark.parametrize(("name", "flaw"), BAD_NAMES.items())
def test_a_bad_name_is_refused_with_the_reason(name: str, flaw: str) -> None:  # F42
    with pytest.raises(InvalidEvent, match=flaw) as caught:
        check_name("idempotency_key", name)
    assert str(caught.value).startswith("idempotency_key")


@given(st.text(min_size=1, max_size=NAME_LIMIT))
def test_a_name_is_accepted_exactly_if_it_has_no_control_character_nor_surrogate(
    name: str,
) -> None:
    bad = any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F or 0xD800 <= ord(c) <= 0xDFFF for c in name)
    try:
        check_name("key", name)
    except InvalidEvent:
        assert bad
    else:
        assert not bad
        name.encode()


@pytest.mark.parametrize("number", [None, 0, 2**63 - 1, -(2**63)])
def test_a_sequence_of_64_bits_is_accepted(number: int | None) -> None:  # L7
    assert check_sequence(number) == number


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**100])
def test_a_larger_sequence_is_refused(number: int) -> None:  # F28
    with pytest.raises(InvalidEvent, match="64 bits"):
        check_sequence(number)


def test_a_moment_with_an_offset_is_kept_in_utc() -> None:
    moment = datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1)))
    kept = check_moment(moment)
    assert kept == moment
    assert kept is not None
    assert kept.utcoffset() == timedelta(0)
    assert to_text(kept) == "2026-01-31T12:00:00.000000Z"


def test_a_moment_without_an_offset_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="offset"):
        check_moment(datetime(2026, 1, 31))  # noqa: DTZ001


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=1))),
    ],
)
def test_a_moment_outside_the_calendar_is_refused(moment: datetime) -> None:  # F28
    with pytest.raises(InvalidEvent, match="years"):
        check_moment(moment)


def test_a_missing_moment_stays_none() -> None:
    assert check_moment(None) is None


def test_a_fingerprint_tells_payloads_apart() -> None:
    assert fingerprint(b"a") == fingerprint(b"a") != fingerprint(b"b")
    assert len(fingerprint(b"")) == 32


def test_lag_is_counted_from_the_oldest_and_is_never_negative() -> None:  # L5
    now = datetime(2026, 1, 31, tzinfo=UTC)
    counts = dict.fromkeys(Status, 0)
    assert Stats(counts, None).lag(now) == timedelta(0)
    assert Stats(counts, now - timedelta(seconds=5)).lag(now) == timedelta(seconds=5)
    assert Stats(counts, now + timedelta(seconds=5)).lag(now) == timedelta(0)


GIVEN: dict[str, Any] = {
    "source": "webhooks",
    "idempotency_key": "key",
    "event_type": "order.paid",
    "transport": "http",
}


def seal_with(**changes: Any) -> Envelope:
    return seal(b"{}", datetime(2026, 1, 31, tzinfo=UTC), lambda bits: 0, **(GIVEN | changes))


def test_a_sealed_envelope_has_its_own_id_time_and_fingerprint() -> None:
    sealed = seal_with(
        lane="a", source_emitted_at=datetime(2026, 1, 30, 1, tzinfo=timezone(timedelta(hours=-5)))
    )
    assert sealed.id == new_event_id(sealed.received_at, lambda bits: 0)
    assert (sealed.payload, sealed.payload_sha256) == (b"{}", fingerprint(b"{}"))
    assert (sealed.idempotency_key, sealed.lane, sealed.headers) == ("key", "a", None)
    assert sealed.source_emitted_at == datetime(2026, 1, 30, 6, tzinfo=UTC)
    assert sealed.source_emitted_at.tzinfo is UTC


NAMES = ["source", "idempotency_key", "event_type", "content_type", "lane", "verified_by"]


@pytest.mark.parametrize("field", [*NAMES, "request_id"])
@pytest.mark.parametrize("value", ["", "x" * 256, "a\nb"])
def test_every_name_of_an_envelope_is_checked(field: str, value: str) -> None:
    with pytest.raises(InvalidEvent, match=field):
        seal_with(**{field: value})


def test_the_number_and_the_time_of_the_source_are_checked() -> None:
    with pytest.raises(InvalidEvent, match="source_sequence"):
        seal_with(source_sequence=1 << 63)
    with pytest.raises(InvalidEvent, match="source_emitted_at"):
        seal_with(source_emitted_at=datetime(2026, 1, 31))  # noqa: DTZ001
