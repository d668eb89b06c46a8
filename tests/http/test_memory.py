"""The settings bound the memory, however much is sent at once (F45)."""

from pathlib import Path

from support.http.capacity import MIB, flood
from support.servers.server import running

LIMITED = {"INGEST_BUFFER_BYTES": "64MiB", "LOG_LEVEL": "WARNING"}


def test_600_events_of_1_mb_from_40_connections_fit_into_256_mib(tmp_path: Path) -> None:
    with running(tmp_path, LIMITED) as server:
        statuses = flood(server, events=600, connections=40)

        assert set(statuses) <= {202, 429, 503}
        assert statuses[202] > 100
        assert server.peak_bytes() <= 256 * MIB
        assert server.get("/health").json()["status"] == "ok"
