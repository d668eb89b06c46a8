"""The sweep of connections past their deadline is a supervised service (S26, F56)."""

from typing import Any

from ackbox.http.server import make_server
from ackbox.services import Services
from ackbox.telemetry import ServiceFailed, ServiceRecovered
from support.ledgers.events import noon
from support.ledgers.facts import Facts


class Connection:
    """A connection whose sweep may raise. Aborting removes it."""

    def __init__(self, connections: set[Any], *, fails: bool) -> None:
        self.fails = fails
        self.swept = 0
        self.transport = self
        self._connections = connections
        connections.add(self)

    def sweep(self, now: float) -> None:
        if self.fails:
            raise ValueError("a bug")
        self.swept += 1

    def abort(self) -> None:
        self._connections.discard(self)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An app that is never called."""


async def test_a_connection_that_fails_in_the_sweep_is_aborted_and_reported() -> None:  # S26, F56
    facts = Facts()
    server = make_server(app)
    server.deadlines = Services(facts, clock=noon).add("connection-deadlines")
    connections: Any = server.server_state.connections
    bad, good = (Connection(connections, fails=fails) for fails in (True, False))

    await server.on_tick(0)
    await server.on_tick(10)

    assert bad not in connections
    assert good.swept >= 1
    assert [fact.name for fact in facts.of(ServiceFailed)] == ["connection-deadlines"]
    assert len(facts.of(ServiceRecovered)) == 1
