"""The background loops of a PostgreSQL ledger are supervised (S26)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ackbox.app import utc_now
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
from ackbox.stores.postgres.write.notifications import Notifications
from ackbox.telemetry import ServiceFailed
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.facts import Facts
from support.time.supervisor import supervisor

LOOPS: dict[str, tuple[type, str]] = {
    "database-checks": (PostgresStore, "_compare_clocks"),
    "notifications": (Notifications, "_listen"),
}


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_that_raises_is_restarted(
    name: str,
    postgres_of: Callable[[Install], PostgresServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # S26, F56
    where, method = LOOPS[name]
    real_loop, errors, works = getattr(where, method), [ValueError("x")] * 2, asyncio.Event()

    async def fails_twice(self: Any) -> None:
        if errors:
            raise errors.pop()
        works.set()
        await real_loop(self)

    monkeypatch.setattr(where, method, fails_twice)
    server, facts = postgres_of(find_installs()[-1]), Facts()
    url = server.create_database()
    store = await open_store(
        Address(url),
        clock=utc_now,
        observe=facts,
        options=StoreOptions(check_seconds=0.0),
        services=supervisor(facts),
    )
    try:
        await asyncio.wait_for(works.wait(), 10)
    finally:
        await store.close()
        server.recycle_database(url)
    failed = [(fact.name, fact.failures) for fact in facts.of(ServiceFailed)]
    assert failed == [(name, 1), (name, 2)]
