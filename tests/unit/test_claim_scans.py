"""Which scan a claim on PostgreSQL uses, by the table in `claim_scans.py`."""

from datetime import UTC, datetime

import pytest

from ackbox.stores.postgres.write.claim_scans import FULL_SCAN_SHARE, ClaimScans, Scan, State

QUICK, SLOW = 0.001, 0.5
CURSOR = (datetime(2026, 1, 1, tzinfo=UTC), 1)


def scans(state: State = State.STEADY) -> ClaimScans:
    """Return the scans in this state at time 0, with a cursor for source `x`."""
    made = ClaimScans(0.0)
    made.cursors = {"x": CURSOR}
    if state is State.SLOW:
        made.note_scan(Scan.AFTER_CURSORS, QUICK, 0.0, limit_reached=False)
        made.note_scan(Scan.FULL, SLOW, 0.0, limit_reached=False)
    elif state is State.BACKLOG:
        made.note_scan(Scan.FULL, QUICK, 0.0, limit_reached=True)
    assert made.state is state
    return made


@pytest.mark.parametrize(
    ("state", "usual", "now_and_then"),
    [
        (State.STEADY, Scan.FULL, Scan.AFTER_CURSORS),
        (State.BACKLOG, Scan.AFTER_CURSORS, Scan.FULL),
        (State.SLOW, Scan.AFTER_CURSORS, Scan.FULL),
    ],
)
def test_each_state_has_a_usual_scan_and_another_now_and_then(
    state: State, usual: Scan, now_and_then: Scan
) -> None:
    made = scans(state)
    assert made.choose(0.9) is usual
    assert made.choose(SLOW * FULL_SCAN_SHARE + 1.0) is now_and_then


@pytest.mark.parametrize("state", State)
def test_without_a_cursor_every_scan_is_a_full_one(state: State) -> None:
    made = scans(state)
    made.cursors = {}
    assert made.choose(0.9) is made.choose(60.0) is Scan.FULL


def test_a_slow_full_scan_is_repeated_less_often() -> None:  # F37
    made = scans(State.SLOW)
    assert made.choose(SLOW * FULL_SCAN_SHARE - 0.1) is Scan.AFTER_CURSORS
    assert made.choose(SLOW * FULL_SCAN_SHARE) is Scan.FULL


@pytest.mark.parametrize("state", [State.BACKLOG, State.SLOW])
def test_a_requested_full_scan_is_due_at_once(state: State) -> None:
    made = scans(state)
    made.request_full_scan()
    assert made.choose(0.0) is Scan.FULL


def test_a_source_without_a_cursor_needs_a_full_scan() -> None:
    made = scans(State.BACKLOG)
    made.note_sources({"x"})
    assert made.choose(0.5) is Scan.AFTER_CURSORS
    made.note_sources({"x", "new"})
    assert made.choose(0.5) is Scan.FULL


@pytest.mark.parametrize(
    ("before", "scan", "seconds", "limit_reached", "after"),
    [
        (State.STEADY, Scan.FULL, QUICK, False, State.STEADY),
        (State.STEADY, Scan.FULL, QUICK, True, State.BACKLOG),
        (State.STEADY, Scan.AFTER_CURSORS, QUICK, True, State.BACKLOG),
        (State.BACKLOG, Scan.AFTER_CURSORS, QUICK, True, State.BACKLOG),
        (State.BACKLOG, Scan.AFTER_CURSORS, QUICK, False, State.STEADY),
        (State.SLOW, Scan.AFTER_CURSORS, QUICK, True, State.SLOW),
        (State.SLOW, Scan.AFTER_CURSORS, QUICK, False, State.SLOW),
        (State.SLOW, Scan.FULL, SLOW, True, State.SLOW),
        (State.SLOW, Scan.FULL, QUICK, True, State.BACKLOG),
        (State.SLOW, Scan.FULL, QUICK, False, State.STEADY),
    ],
)
def test_a_scan_moves_to_the_next_state(
    before: State, scan: Scan, seconds: float, limit_reached: bool, after: State
) -> None:
    made = scans(before)
    made.note_scan(scan, seconds, 1.0, limit_reached=limit_reached)
    assert made.state is after


def test_before_a_scan_after_the_cursors_was_measured_no_full_scan_is_slow() -> None:
    made = scans()
    made.note_scan(Scan.FULL, 60.0, 60.0, limit_reached=False)
    assert made.state is State.STEADY


@pytest.mark.parametrize(("next_due", "expected"), [(None, 5.0), (3.0, 3.0), (9.0, 5.0)])
def test_while_full_scans_are_slow_the_worker_waits_for_the_next_one_at_most(
    next_due: float | None, expected: float
) -> None:
    assert scans(State.SLOW).next_claim_at(next_due) == expected
    assert scans(State.STEADY).next_claim_at(next_due) == next_due
