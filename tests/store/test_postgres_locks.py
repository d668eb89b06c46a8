"""What one instance has locked must not stop the others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ackbox.errors import Unavailable
from ackbox.model import Settlement
from ackbox.stores.postgres.lanes import hold_lanes
from ackbox.stores.postgres.settling import hold
from support.backends import BACKENDS, Server
from support.events import envelope, envelopes
from support.postgres import find_installs
from support.postgres_backend import PostgresBackend
from support.work import LEASE, Hands, done


@pytest.fixture
async def backend(postgres_of: Server, tmp_path: Path) -> AsyncIterator[PostgresBackend]:
    opened = BACKENDS[str(find_installs()[-1])](tmp_path, postgres_of)
    assert isinstance(opened, PostgresBackend)
    await opened.open()
    yield opened
    await opened.close()


async def test_a_transaction_that_stands_still_is_ended(backend: PostgresBackend) -> None:
    """As when its instance is frozen between two statements."""

    async def stand_still() -> None:
        async with backend.store.database.transaction() as frozen:
            await hold_lanes(frozen, {("webhooks", "l")})
            async with asyncio.timeout(10):
                await backend.store.record([envelope("a", lane="l")])

    with pytest.raises(Unavailable):
        await stand_still()
    assert len(await backend.rows()) == 1


async def test_a_renewal_does_not_wait_for_what_is_being_settled(backend: PostgresBackend) -> None:
    me = Hands(backend.store.queue)
    await backend.store.record(envelopes(3))
    claims = await me.claim()
    async with backend.store.database.transaction() as settling:
        await hold(settling, [Settlement(claims[0], done())])
        backend.clock.advance(seconds=20)
        async with asyncio.timeout(1):
            kept = await me.queue.renew(claims, lease=LEASE)
    assert kept == {claim.id for claim in claims}
    backend.clock.advance(seconds=20)
    assert await Hands(backend.store.queue).keys() == ["key-0"]
