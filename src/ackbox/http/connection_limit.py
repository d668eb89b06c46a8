"""Room for new connections, when there are as many as there may be (F39)."""

from heapq import nsmallest
from math import inf
from typing import Any

from uvicorn.server import ServerState


def make_room(state: ServerState) -> None:
    """Close connections that have kept us waiting longest, a hundredth of them, so that a flood of
    new ones does not pay for a look at all each time; those at work are left alone."""
    waiting: list[Any] = [c for c in state.connections if _is_waiting(c)]
    for connection in nsmallest(len(waiting) // 100 + 1, waiting, key=lambda c: c.since):
        connection.transport.abort()


def _is_waiting(connection: Any) -> bool:
    return connection.deadline < inf and not connection.transport.is_closing()
