"""Ledgers of every released version open in this one, with all that they contain."""

import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ackbox.model import Content, Done, EventKey, EventRecord, ReceiptKind, Status, make_sent_event
from ackbox.ports import Reader, Store
from ackbox.stores.migrations import Migration
from ackbox.stores.postgres.admin import migrator
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.read.reader import PostgresReader
from ackbox.stores.postgres.store import open_store
from ackbox.stores.sqlite import migrations
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.telemetry import ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in
from support.ledgers.released_ledgers import postgres_dump, restore, sqlite_file
from support.workers.event_runs import claim, settle

RELEASES = ["0.1"]
FROZEN = {
    "sqlite 0001": "d458315b5f0b4f1298f9706df1b51e5878d2ef52f2a55c1322769b1a34eca07d",
    "postgres 0001": "d0c99a6bead97630cc3d85a3e5fa598d95cee1332bc26807c31030c03d15b746",
}
"""A migration that was released never changes: a ledger remembers its checksum."""
STATES = {
    "pending": Status.PENDING,
    "retrying": Status.PENDING,
    "parked": Status.PENDING,
    "running": Status.PROCESSING,
    "failed": Status.PENDING,  # it was replayed
    "head": Status.PENDING,
    "behind": Status.PENDING,
}

Released = tuple[Store, Reader]


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(params=["sqlite", *map(str, find_installs())])
async def released(
    request: pytest.FixtureRequest,
    release: str,
    tmp_path: Path,
    postgres_of: Callable[[Install], PostgresServer],
) -> AsyncIterator[Released]:
    """The ledger of a release, opened by this version, which applies its newer migrations."""
    reader: Reader
    store: Store
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        shutil.copy(sqlite_file(release), path)
        store = await open_sqlite(path, clock=now)
        reader = SqliteReader(path)
    else:
        (install,) = [each for each in find_installs() if str(each) == request.param]
        server = postgres_of(install)
        url = server.create_database()
        restore(server, postgres_dump(release), url)
        store = await open_store(Address(url), clock=now, observe=ignore_facts)
        reader = PostgresReader(Address(url))
    yield store, reader
    await reader.close()
    await store.close()


async def event_of(reader: Reader, key: str) -> EventRecord:
    event = await reader.event(EventKey("webhooks", key))
    assert event is not None, key
    return event


@pytest.mark.parametrize("release", RELEASES)
async def test_a_released_ledger_opens_with_all_it_contains(released: Released) -> None:
    store, reader = released
    assert {key: (await event_of(reader, key)).status for key in STATES} == STATES
    assert await reader.content((await event_of(reader, "pending")).id) == Content(
        b"\xff\x00exact", None
    )
    assert await store.cursor("feed") == "page-7"
    audit = await reader.audit(limit=10)
    assert [(entry.actor, entry.action) for entry in audit.items] == [("ann", "replay")]


@pytest.mark.parametrize("release", RELEASES)
async def test_a_released_ledger_knows_its_keys(released: Released) -> None:
    """Those of events, and those of which only a tombstone is left."""
    store, _ = released
    known = [envelope("pending", b"\xff\x00exact"), envelope("old"), envelope("tombstoned")]
    receipts = await record_in(store, [*known, envelope("new")])
    assert [receipt.kind for receipt in receipts] == [*[ReceiptKind.DUPLICATE] * 3, ReceiptKind.NEW]


@pytest.mark.parametrize("release", RELEASES)
async def test_a_released_ledger_goes_on(released: Released) -> None:
    store, reader = released
    claims = await claim(store)
    assert {"pending", "failed", "head"} <= {each.idempotency_key for each in claims}
    await settle(store, claims)
    assert (await event_of(reader, "pending")).status is Status.COMPLETED
    assert [each.idempotency_key for each in await claim(store)] == ["behind"]


@pytest.mark.parametrize("release", RELEASES)
async def test_a_released_ledger_has_the_columns_of_this_version(released: Released) -> None:
    store, reader = released
    pending = await event_of(reader, "pending")
    assert pending.parent_id is None
    child = envelope("child", parent_id=pending.id)
    await record_in(store, [child])
    assert (await event_of(reader, "child")).parent_id == pending.id


@pytest.mark.parametrize("release", RELEASES)
async def test_a_handler_sends_events_in_a_released_ledger(released: Released) -> None:
    store, reader = released
    sent = [make_sent_event("sent", 1, key="sent", source="app", lane=None)]
    await settle(store, (await claim(store))[:1], Done("handled", (), None, sent))
    assert [receipt.kind for receipt in (await store.submissions.move()).receipts] == ["new"]
    assert await reader.event(EventKey("app", "sent")) is not None


def test_a_released_migration_never_changes() -> None:
    def checksums(database: str, known: list[Migration]) -> dict[str, str]:
        return {f"{database} {each.version:04}": each.checksum for each in known}

    current = checksums("sqlite", migrations.all_migrations()) | checksums(
        "postgres", migrator.all_migrations()
    )
    assert {name: current[name] for name in FROZEN} == FROZEN
