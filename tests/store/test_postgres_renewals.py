"""The heartbeat keeps one connection between beats, and replaces a lost connection (S7)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ackbox.app import utc_now
from ackbox.errors import Unavailable
from ackbox.model import EventId
from ackbox.stores.postgres import database
from ackbox.stores.postgres.database import Address, KeptConnection
from ackbox.stores.postgres.store import PostgresStore, StoreOptions, open_store
from ackbox.telemetry import ignore_facts
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import envelope, record_in
from support.workers.event_runs import LEASE, claim


class Beats:
    """A heartbeat that renews when a test says so, from its own thread and event loop."""

    def __init__(self, store: PostgresStore, claims: list[Any]) -> None:
        self._queue, self._claims = store.queue, claims
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stopped.wait()

    async def beat(self) -> set[EventId]:
        renewing = self._queue.renew(self._claims, lease=LEASE)
        return set(
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(renewing, self._loop))
        )

    async def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join)


class Connections(list[Any]):
    """The connections that were opened outside of the pool."""


@pytest.fixture
def server(postgres_of: Callable[[Install], PostgresServer]) -> PostgresServer:
    return postgres_of(find_installs()[-1])


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    made, connect = Connections(), database.connect

    async def counted(*args: Any, **named: Any) -> Any:
        made.append(await connect(*args, **named))
        return made[-1]

    monkeypatch.setattr(database, "connect", counted)
    return made


@pytest.fixture
async def beats(server: PostgresServer, connections: Connections) -> AsyncIterator[Beats]:
    address = Address(server.create_database())
    store = await open_store(
        address, clock=utc_now, observe=ignore_facts, options=StoreOptions(notify=False)
    )
    await record_in(store, [envelope()])
    made = Beats(store, await claim(store))
    yield made
    await made.close()
    assert all(connection.is_closed() for connection in connections)
    await store.close()


async def test_beats_share_one_connection(beats: Beats, connections: Connections) -> None:  # S7
    for _ in range(5):
        assert len(await beats.beat()) == 1
    assert len(connections) == 1


async def test_a_connection_that_was_lost_is_replaced_in_the_same_beat(
    beats: Beats, connections: Connections, server: PostgresServer
) -> None:  # S7
    await beats.beat()
    pid = connections[0].get_server_pid()
    server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
    assert len(await beats.beat()) == 1
    assert len(connections) == 2


async def test_a_server_that_refuses_connections_is_unavailable(
    beats: Beats, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:  # S7: an outage is not a bug of the heartbeat
    await beats.beat()
    real = database.connect

    async def refused(*args: Any, **named: Any) -> Any:
        raise Unavailable("away")

    connections[0].terminate()
    monkeypatch.setattr(database, "connect", refused)
    with pytest.raises(Unavailable):
        await beats.beat()
    monkeypatch.setattr(database, "connect", real)
    assert len(await beats.beat()) == 1


async def test_a_connection_that_was_idle_for_long_is_replaced(
    server: PostgresServer, connections: Connections
) -> None:  # S7: a firewall may drop the packets of an idle connection, and the beat would hang
    now = 0.0
    kept = KeptConnection(Address(server.create_database()), monotonic=lambda: now)
    for now in (0.0, 59.0, 118.0, 179.0, 238.0):  # noqa: B007 - the clock
        await kept.fetch("server_time")
    kept.close()
    assert len(connections) == 2
    assert connections[0].is_closed()
