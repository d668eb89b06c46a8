"""`payload_json`: the payload as `jsonb`, if `jsonb` can store it and print it again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ackbox.model import Content
from support.databases.postgres import find_installs
from support.ledgers.backends import Server
from support.ledgers.events import envelope, record_in
from support.ledgers.postgres_backend import PostgresBackend

BOMB = b"[%s]" % b",".join([b"1e131000"] * 9000)


@pytest.fixture(params=find_installs(), ids=str)
async def backend(
    request: pytest.FixtureRequest, postgres_of: Server, tmp_path: Path
) -> AsyncIterator[PostgresBackend]:
    opened = PostgresBackend(tmp_path, postgres_of(request.param))
    await opened.open()
    yield opened
    await opened.close()


async def test_a_payload_whose_json_is_too_long_for_the_server_has_only_its_bytes(  # P7
    backend: PostgresBackend,
) -> None:
    """The JSON text would have 1.2 GB: neither `SELECT` nor `pg_dump` could read the table."""
    sent = envelope(payload=BOMB)
    await record_in(backend.store, [sent])
    assert await backend.reader.content(sent.id) == Content(BOMB, None)
    assert await backend.fetch("SELECT length(payload_json::text) FROM events") == [(None,)]


async def length_of(backend: PostgresBackend, payload: str) -> int | None:
    """Record the payload and return the length of its `payload_json` as text."""
    await record_in(backend.store, [envelope(payload=payload.encode())])
    ((length,),) = await backend.fetch("SELECT length(payload_json::text) FROM events")
    return None if length is None else int(length)


@pytest.mark.parametrize(
    "number",
    [
        "1e100",
        "-1E+400",
        "7.5e-16000",
        "0e-16000",
        "10e00131000",
        '["\\\\", 1e999]',
        '{"a":\t1e999}',
    ],
)
async def test_a_number_that_would_be_far_longer_than_it_was_sent_is_not_stored_as_json(  # P7
    backend: PostgresBackend, number: str
) -> None:
    assert await length_of(backend, number) is None


@pytest.mark.parametrize(
    "payload",
    [
        "1e20",
        "[6.02E+23, -1e-99, 1e0020]",
        '["4e1234"]',
        '[" 1e999", "\\": 1e999", "\\\\"]',
        '{", 1e999": 1}',
        '"7d2e404c-8a1b-4e12-9e99-0e1234567890"',
        '"' + "1" * 1000 + 'e500"',
    ],
)
async def test_other_numbers_and_numbers_in_strings_are_stored_as_json(
    backend: PostgresBackend, payload: str
) -> None:
    assert await length_of(backend, payload) is not None


@pytest.mark.parametrize("payload", ['"\\u0000"', '"\\ud800"', "[" * 100_000, "no JSON", "\0", ""])
async def test_a_payload_that_jsonb_cannot_store_has_only_its_bytes(  # P7
    backend: PostgresBackend, payload: str
) -> None:
    assert await length_of(backend, payload) is None


async def test_a_payload_whose_json_is_too_long_to_read_has_only_its_bytes(  # P7
    backend: PostgresBackend,
) -> None:
    """The JSON text may be 21 times as long as the payload: `1e99,` has five characters and becomes
    102."""
    large = "[" + ",".join(["1e99"] * (32 * 1024 * 1024 // 5 + 1)) + "]"
    assert await length_of(backend, large) is None
