"""Repeated crashes in full size: ten handlers of 4 s, three kills (F58)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.crash_storm import Storm, storm_on_postgres, storm_on_sqlite

SECONDS = 4.0
WITHIN = 2.0

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


def assert_survived(storm: Storm) -> None:
    storm.kill_repeatedly()
    seconds = storm.wait_for_unrelated()
    print(f"unrelated events were done within {seconds:.2f} s")
    assert seconds < WITHIN
    storm.check(within=120)


@pytest.mark.parametrize("attempts", ["1", "5"])
def test_on_sqlite(tmp_path: Path, attempts: str) -> None:  # F58
    with storm_on_sqlite(tmp_path, SECONDS, MAX_ATTEMPTS=attempts) as storm:
        assert_survived(storm)


@pytest.mark.parametrize("attempts", ["1", "5"])
def test_on_postgres(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path, attempts: str
) -> None:  # F58
    server = postgres_of(find_installs()[-1])
    with storm_on_postgres(server, tmp_path, SECONDS, MAX_ATTEMPTS=attempts) as storm:
        assert_survived(storm)
