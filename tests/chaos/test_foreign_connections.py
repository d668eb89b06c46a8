"""Another SQLite library inside the process that serves the ledger, at full size."""

from pathlib import Path

import pytest

from support.servers.embedded import assert_foreign_closes_lose_nothing


# N1, F53
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_fifty_kills_after_foreign_closes_lose_nothing(tmp_path: Path) -> None:
    assert_foreign_closes_lose_nothing(tmp_path, rounds=50)
