"""Make room for new connections when the limit is reached (F39)."""

from heapq import nsmallest
from math import inf
from typing import Any

from uvicorn.server import ServerState


def make_room(state: ServerState) -> None:
    """Close one percent of the waiting connections, and at least one: those that have kept the
    server waiting longest. Closing several at once means that a flood of new connections does not
    cause a scan for each. A connection whose request is being processed is never closed."""
    waiting: list[Any] = [c for c in state.connections if _is_waiting(c)]
    for connection in nsmallest(len(waiting) // 100 + 1, waiting, key=lambda c: c.waiting_since):
        connection.transport.abort()


def _is_waiting(connection: Any) -> bool:
    return connection.deadline < inf and not connection.transport.is_closing()
