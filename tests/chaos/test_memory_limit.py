"""F45 in full: ten gigabytes through a server that may use a quarter of a gigabyte."""

from pathlib import Path

import pytest

from support.http.capacity import MIB, flood
from support.servers.server import running

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("connections", [40, 200])
def test_10_000_events_of_1_mb_fit_into_256_mib(tmp_path: Path, connections: int) -> None:
    settings = {"INGEST_BUFFER_BYTES": "64MiB", "LOG_LEVEL": "WARNING"}
    with running(tmp_path, settings) as server:
        statuses = flood(server, events=10_000, connections=connections)

        assert set(statuses) <= {202, 429, 503}
        assert server.peak_bytes() <= 256 * MIB
        assert server.stop() == 0
    for file in tmp_path.glob("events.db*"):
        file.unlink()
