"""Memory is bounded by the settings, whatever is sent at once (F45)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.posting import new_key
from support.server import Server, running
from support.wire import Wire, request

MIB = 1024 * 1024
CONNECTIONS = 40


def test_600_events_of_1_mb_from_40_connections_fit_into_256_mib(tmp_path: Path) -> None:
    settings = {"INGEST_BUFFER_BYTES": "64MiB", "LOG_LEVEL": "WARNING"}
    with running(tmp_path, settings, {}) as server:
        statuses = flood(server, events=600)
        peak = server.peak_bytes()

        assert set(statuses) <= {202, 429, 503}
        assert statuses[202] > 100
        assert peak <= 256 * MIB
        assert server.get("/health").json()["status"] == "ok"


def flood(server: Server, *, events: int) -> Counter[int]:
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        counts = threads.map(lambda _: post_many(server, events // CONNECTIONS), range(CONNECTIONS))
        return sum(counts, Counter[int]())


def post_many(server: Server, events: int) -> Counter[int]:
    statuses = Counter[int]()
    filler = b"x" * 1_000_000
    with Wire(server.port, timeout=60) as wire:
        for _ in range(events):
            body = b'{"idempotency_key":"%s","payload":"%s"}' % (new_key().encode(), filler)
            statuses[wire.send(request("POST", "/webhooks", body)).read().status] += 1
    return statuses
