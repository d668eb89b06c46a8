"""The counts of a running ackbox, from `GET /api/stats`."""

import http.client
import json
import time

from bench.failure import BenchFailed
from bench.programs import API_TOKEN
from bench.server import Server

INTERVAL = 0.2
"""A request costs the server a millisecond of CPU, which is part of the measurement."""
LIMIT = 120.0
_OPERATOR = {"Authorization": f"Bearer {API_TOKEN}"}


def completed(server: Server) -> int:
    return _counts(server)["completed"]


def await_empty(server: Server) -> None:
    """Wait until no event is pending or processing."""
    deadline = time.monotonic() + LIMIT
    while waiting := _waiting(_counts(server)):
        if time.monotonic() > deadline:
            raise BenchFailed(f"{waiting} events were not completed within {LIMIT:.0f} s")
        time.sleep(INTERVAL)


def _waiting(counts: dict[str, int]) -> int:
    return counts["pending"] + counts["processing"]


def _counts(server: Server) -> dict[str, int]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", "/api/stats", headers=_OPERATOR)
        counts: dict[str, int] = json.load(connection.getresponse())["events"]
        return counts
    finally:
        connection.close()
