"""A copy that another process makes while the server writes (S1, L13)."""

from pathlib import Path

import pytest

from ackbox.errors import StoreError
from ackbox.stores.sqlite.admin.live_backup import copy_beside_server
from support.http.posting import posted
from support.servers.server import Server, read_ledger, running

LARGE = "x" * 500_000


def fill(server: Server, count: int) -> None:
    for _ in range(count):
        assert server.post(posted(payload=LARGE)).status == 202


# S1, L13
async def test_a_copy_gives_up_before_the_log_of_the_server_grows_too_large(
    tmp_path: Path,
) -> None:
    target = tmp_path / "copy.db"
    with running(tmp_path / "server") as server:
        fill(server, 6)
        steps = copy_beside_server(server.ledger, target, max_log_growth=2_000_000)
        await anext(steps)
        fill(server, 8)
        with pytest.raises(StoreError, match="BACKUP_DIR"):
            async for _ in steps:
                pass
        assert list(tmp_path.glob("copy.db*")) == []
        whole = [step async for step in copy_beside_server(server.ledger, target)]
        assert len(whole) > 1
        assert read_ledger(target, "SELECT count(*) FROM events") == [(14,)]
        assert server.post(posted()).status == 202
