"""An idle transaction keeps vacuum from removing dead rows; claims stay fast (F37)."""

from collections.abc import Callable
from statistics import median

import pytest

from ackbox.app import utc_now
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import open_store
from ackbox.telemetry import ignore_facts
from support.databases.pinned import claim_seconds, pinned
from support.databases.postgres import Install, PostgresServer, find_installs


@pytest.mark.serial
@pytest.mark.timeout(120)
async def test_a_forgotten_transaction_does_not_slow_claims_down(
    postgres_of: Callable[[Install], PostgresServer],
) -> None:
    url = postgres_of(find_installs()[-1]).create_database()
    store = await open_store(Address(url, "normal"), clock=utc_now, observe=ignore_facts)
    try:
        await claim_seconds(store, 1000)
        usual = median(await claim_seconds(store, 5000))
        async with pinned(url):
            await claim_seconds(store, 20_000)
            assert median(await claim_seconds(store, 5000)) < 2 * usual
    finally:
        await store.close()
