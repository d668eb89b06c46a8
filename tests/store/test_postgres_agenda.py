"""The agenda is what `events` says, whatever was done to it, by us or by hand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ackbox.model import Outcome, Release
from support.backends import BACKENDS, Server
from support.events import envelope, envelopes
from support.postgres import find_installs
from support.postgres_backend import PostgresBackend
from support.work import Hands, boom, dead, done

AGENDA = "SELECT * FROM agenda ORDER BY ledger_id"
MEANT = """
SELECT ledger_id, source, event_type, lane, status,
       status = 'pending' AND outcome IS NOT DISTINCT FROM 'held', unsettled, claimable_at
FROM events WHERE status <> 'completed' ORDER BY ledger_id
"""


@pytest.fixture
async def backend(postgres_of: Server, tmp_path: Path) -> AsyncIterator[PostgresBackend]:
    opened = BACKENDS[str(find_installs()[-1])](tmp_path, postgres_of)
    assert isinstance(opened, PostgresBackend)
    await opened.open()
    yield opened
    await opened.close()


async def assert_true(backend: PostgresBackend, rows: int) -> None:
    agenda = await backend.ask(AGENDA)
    assert agenda == await backend.ask(MEANT)
    assert len(agenda) == rows


async def test_it_follows_every_step(backend: PostgresBackend) -> None:
    me = Hands(backend.store.queue)
    await backend.store.record([*envelopes(6), envelope("a", lane="l"), envelope("b", lane="l")])
    await assert_true(backend, 8)
    claims = await me.claim()
    await assert_true(backend, 8)
    ends: list[Outcome] = [done(), boom(), dead(), Release(), Release(held=True), done()]
    for claim, end in zip(claims, ends, strict=False):
        await me.settle(claim, end)
    await assert_true(backend, 6)
    await backend.store.replay([claim.id for claim in claims], actor="tester")
    await assert_true(backend, 8)


@pytest.mark.parametrize("outcome", ["'held'", "NULL"])
async def test_it_follows_what_is_done_by_hand(backend: PostgresBackend, outcome: str) -> None:
    await backend.store.record(envelopes(4))
    await backend._execute("UPDATE events SET status = 'completed'")
    await assert_true(backend, 0)
    await backend._execute(f"UPDATE events SET status = 'pending', outcome = {outcome}")
    await assert_true(backend, 4)
    await backend._execute("DELETE FROM events")
    await assert_true(backend, 0)
