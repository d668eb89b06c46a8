"""F37 at length: a third of a million dead index entries that vacuum may not remove."""

from collections.abc import Callable
from statistics import median

import pytest

from ackbox.app import utc_now
from ackbox.stores.postgres.database import Address
from ackbox.stores.postgres.store import open_store
from ackbox.telemetry import ignore_facts
from support.databases.pinned import claim_seconds, pinned
from support.databases.postgres import Install, PostgresServer, find_installs

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

EVENTS = 160_000  # each leaves two dead entries: recorded, then claimed
STEP = 10_000


async def test_claims_stay_fast_while_vacuum_is_blocked(
    postgres_of: Callable[[Install], PostgresServer],
) -> None:
    url = postgres_of(find_installs()[-1]).create_database()
    store = await open_store(Address(url, "normal"), clock=utc_now, observe=ignore_facts)
    try:
        await claim_seconds(store, STEP)
        usual = median(await claim_seconds(store, STEP))
        slower: list[float] = []
        async with pinned(url):
            for _ in range(EVENTS // STEP):
                took = await claim_seconds(store, STEP)
                slower.append(median(took) / usual)
                print(f"{slower[-1]:.1f} x, the longest {max(took) * 1000:.0f} ms")
        assert max(slower) < 2
    finally:
        await store.close()
