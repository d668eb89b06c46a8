"""After repeated crashes, suspects delay no other event and fail no other event (S9, F58)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.databases.postgres import Install, PostgresServer, find_installs
from support.faults.crash_storm import Storm, storm_on_postgres, storm_on_sqlite

SECONDS = 0.0  # the slow handlers run until the test lets them end
WITHIN = 2.0

pytestmark = [pytest.mark.serial, pytest.mark.timeout(120)]


def assert_survived(storm: Storm) -> None:
    storm.kill_repeatedly()
    assert storm.wait_for_unrelated() < WITHIN
    storm.check(within=30)


def test_on_sqlite(tmp_path: Path) -> None:  # S9, F58
    with storm_on_sqlite(tmp_path, SECONDS) as storm:
        assert_survived(storm)


def test_with_one_attempt_no_event_becomes_a_dead_letter(tmp_path: Path) -> None:  # S9, F58
    """The suspect that was running at the third kill has one run left, which it gets alone, after
    the other suspects."""
    with storm_on_sqlite(tmp_path, SECONDS, MAX_ATTEMPTS="1") as storm:
        assert_survived(storm)


def test_on_postgres(
    postgres_of: Callable[[Install], PostgresServer], tmp_path: Path
) -> None:  # S9, F58
    with storm_on_postgres(postgres_of(find_installs()[-1]), tmp_path, SECONDS) as storm:
        assert_survived(storm)
