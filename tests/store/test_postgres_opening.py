"""Opening a PostgreSQL ledger: what is waited for is told, what waiting cannot mend is raised."""

from collections.abc import Callable

import asyncpg
import pytest

from ackbox.errors import AckboxError, SettingError, StorageFull, StoreError, Unavailable
from ackbox.stores.postgres import migrating
from ackbox.stores.postgres import store as stores
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.failures import translate
from ackbox.telemetry import StoreRecovered, StoreTrouble
from support.events import noon
from support.facts import Facts
from support.postgres import Install, PostgresServer, find_installs


async def test_what_a_start_waits_for_is_told_also_when_the_server_answers(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address(postgres_of(find_installs()[-1]).create_database())
    really, facts, slept = migrating.migrate, Facts(), list[float]()

    async def migrate(database: Database) -> object:
        if len(slept) < 2:
            raise StorageFull("no room")
        return await really(database)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(stores, "migrate", migrate)
    opened = await stores.open_store(address, clock=noon, observe=facts, sleep=sleep)
    await opened.close()
    assert slept == [0.1, 0.2]
    assert facts.of(StoreTrouble)[0].reason == "no room"
    assert isinstance(facts.of(StoreTrouble, StoreRecovered)[-1], StoreRecovered)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.InvalidPasswordError("x"), SettingError),
        (asyncpg.InvalidCatalogNameError("x"), SettingError),
        (asyncpg.UndefinedObjectError("x"), SettingError),
        (asyncpg.CantChangeRuntimeParamError("x"), SettingError),
        (asyncpg.InsufficientPrivilegeError("x"), StoreError),
        (asyncpg.CannotConnectNowError("x"), Unavailable),
        (asyncpg.TooManyConnectionsError("x"), Unavailable),
        (ConnectionRefusedError("x"), Unavailable),
    ],
)
def test_only_what_waiting_cannot_mend_ends_a_start(
    error: Exception, kind: type[AckboxError]
) -> None:
    assert isinstance(translate(error), kind)


async def test_a_session_that_does_not_sync_its_commits_is_refused(
    postgres_of: Callable[[Install], PostgresServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that drops what we set."""
    address = Address(postgres_of(find_installs()[-1]).create_database())
    monkeypatch.setattr(Address, "rules", {"synchronous_commit": "off"})
    with pytest.raises(StoreError, match="synchronous_commit"):
        await stores.open_store(address, clock=noon, observe=Facts())
