"""Parameters of `tx` and `inbox.read` take the same Python types on every database (N13)."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from ackbox.errors import InvalidStatement
from ackbox.model import Done, Outcome, RetryLater, Settlement
from support.ledgers.backends import Backend
from support.ledgers.events import envelope, record_in
from support.workers.queue_worker import QueueWorker, done

SCHEMA = """CREATE TABLE things (
    flag BOOLEAN, number BIGINT, ratio DOUBLE PRECISION, words TEXT, raw BYTEA,
    at TIMESTAMPTZ, day DATE, ref UUID, price NUMERIC)"""
IN_OSLO = datetime(2026, 1, 31, 13, 30, tzinfo=timezone(timedelta(hours=1)))
REF = UUID("018f3b1c-0000-7000-8000-0123456789ab")
VALUES: dict[str, Any] = {
    "flag": True,
    "number": 1 << 62,
    "ratio": 0.1,
    "words": "Grüße, 'quoted'",
    "raw": b"\xff\x00",
    "at": IN_OSLO,
    "day": date(2026, 1, 31),
    "ref": REF,
    "price": Decimal("1234567.89"),
}
TEXTS = {
    "at": (IN_OSLO, "2026-01-31T12:30:00.000000Z"),
    "day": (date(2026, 1, 31), "2026-01-31"),
    "ref": (REF, "018f3b1c-0000-7000-8000-0123456789ab"),
    "price": (Decimal("1234567.8900"), "1234567.8900"),
}
NAIVE = datetime(2026, 1, 31, 12)  # noqa: DTZ001


@pytest.fixture(autouse=True)
async def table(backend: Backend) -> None:
    await backend.store.apply_tables([SCHEMA])


async def insert(backend: Backend, column: str, value: object) -> Outcome:
    await record_in(backend.store, [envelope()])
    claim = await QueueWorker(backend.store.queue).claim_one()
    outcome = done(f"INSERT INTO things ({column}) VALUES (:value)", value=value)
    return (await backend.store.queue.settle([Settlement(claim, outcome)]))[claim.id]


async def find(backend: Backend, condition: str, **params: object) -> list[dict[str, Any]]:
    return await backend.reader.query(f"SELECT * FROM things WHERE {condition}", params)


@pytest.mark.parametrize("column", VALUES)
async def test_a_value_is_written_and_found_by_itself(backend: Backend, column: str) -> None:  # N13
    value = VALUES[column]
    assert isinstance(await insert(backend, column, value), Done)
    assert len(await find(backend, f"{column} = :value", value=value)) == 1


@pytest.mark.parametrize("column", VALUES)
async def test_none_is_null(backend: Backend, column: str) -> None:
    assert isinstance(await insert(backend, column, None), Done)
    assert len(await find(backend, f"{column} IS NULL")) == 1


@pytest.mark.parametrize(("value", "text"), TEXTS.values(), ids=TEXTS)
async def test_a_text_column_holds_the_same_text_on_every_database(
    backend: Backend, value: object, text: str
) -> None:
    assert isinstance(await insert(backend, "words", value), Done)
    (row,) = await find(backend, "words = :value", value=value)
    assert row["words"] == text


@pytest.mark.parametrize(("column", "text"), [(name, text) for name, (_, text) in TEXTS.items()])
async def test_a_column_takes_its_values_as_text_too(
    backend: Backend, column: str, text: str
) -> None:
    assert isinstance(await insert(backend, column, text), Done)
    assert len(await find(backend, f"{column} = :value", value=TEXTS[column][0])) == 1
    assert len(await find(backend, f"{column} = :value", value=text)) == 1


async def test_times_of_different_zones_are_compared_as_times(backend: Backend) -> None:
    await insert(backend, "at", IN_OSLO)
    later = datetime(2026, 1, 31, 12, 30, 1, tzinfo=UTC)
    assert len(await find(backend, "at < :later", later=later)) == 1
    assert await find(backend, "at > :later", later=later) == []


async def test_a_time_without_a_zone_is_refused_by_name(backend: Backend) -> None:
    """It would be taken as local time by one database, and as text by the other."""
    failed = await insert(backend, "at", NAIVE)
    assert isinstance(failed, RetryLater)
    assert "tx: the parameter :value is a datetime without a time zone" in failed.failure.error
    assert failed.failure.error.endswith("Statement: INSERT INTO things (at) VALUES (:value)")
    with pytest.raises(InvalidStatement, match=":since is a datetime without a time zone"):
        await find(backend, "at > :since", since=NAIVE)


async def test_a_time_that_has_no_utc_form_is_refused_by_name(backend: Backend) -> None:
    east = timezone(timedelta(hours=14))
    failed = await insert(backend, "at", datetime(1, 1, 1, tzinfo=east))
    assert isinstance(failed, RetryLater)
    assert ":value" in failed.failure.error.partition("Statement")[0]


@pytest.mark.parametrize("value", [{"a": 1}, 1 << 70, "\ud800", 1j])
async def test_a_read_names_the_statement_and_the_parameter_that_failed(
    backend: Backend, value: object
) -> None:
    with pytest.raises(InvalidStatement) as refused:
        await find(backend, "number = :wrong", wrong=value)
    message = str(refused.value)
    assert ":wrong" in message.partition("Statement")[0]
    assert message.endswith("Statement: SELECT * FROM things WHERE number = :wrong")
    assert "\n" not in message
