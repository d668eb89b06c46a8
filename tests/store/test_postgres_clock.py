"""An instance reports that its clock differs from the server's (F25)."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from ackbox.stores.postgres import store as stores
from ackbox.stores.postgres.database import Address
from ackbox.telemetry import ClockSkewed, Fact
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.facts import Facts


# F25
async def test_a_clock_that_differs_from_the_servers_is_reported_until_it_agrees(
    postgres_of: Callable[[Install], PostgresServer],
) -> None:
    address = Address(postgres_of(find_installs()[-1]).create_database())
    ahead = timedelta(hours=1)
    facts, reported = Facts(), asyncio.Event()

    def observe(fact: Fact) -> None:
        if isinstance(fact, ClockSkewed):
            facts(fact)
            reported.set()

    opened = await stores.open_store(
        address,
        clock=lambda: datetime.now(UTC) + ahead,
        observe=observe,
        options=stores.StoreOptions(check_seconds=0.01),
    )
    try:
        await asyncio.wait_for(reported.wait(), 10)
        reported.clear()
        ahead = timedelta(seconds=5)
        await asyncio.wait_for(reported.wait(), 10)
    finally:
        await opened.close()
    first, last = facts.of(ClockSkewed)
    assert first.seconds == pytest.approx(-3600, abs=5)
    assert last.seconds == 0
