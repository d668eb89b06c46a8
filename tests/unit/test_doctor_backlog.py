"""The findings of doctor on events that wait (N20)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from ackbox.model import Verdict
from ackbox.stores.doctor_checks import MAX_PARKED, Backlog, check_backlog
from support.ledgers.events import NOON

WELL = Backlog(
    pending=1,
    dead_letters=0,
    parked=0,
    oldest_pending=NOON - timedelta(minutes=2),
    oldest_submission=NOON - timedelta(seconds=2),
)


def test_events_that_wait_a_moment_are_ok() -> None:
    assert {finding.verdict for finding in check_backlog(WELL, NOON)} == {Verdict.OK}


# N20
@pytest.mark.parametrize(
    ("about", "backlog", "detail"),
    [
        ("queue", replace(WELL, oldest_pending=NOON - timedelta(hours=2)), "the oldest since 2 h"),
        ("parked", replace(WELL, parked=3), "3 events are parked"),
        ("parked", replace(WELL, parked=MAX_PARKED), f"{MAX_PARKED} or more"),
        (
            "submissions",
            replace(WELL, oldest_submission=NOON - timedelta(minutes=3)),
            "sent 3 min ago are not recorded yet",
        ),
        ("dead letters", replace(WELL, dead_letters=4), "4 events failed for good"),
    ],
)
def test_each_is_a_warning_with_a_remedy(about: str, backlog: Backlog, detail: str) -> None:
    findings = {finding.about: finding for finding in check_backlog(backlog, NOON)}
    assert findings[about].verdict is Verdict.WARN
    assert detail in findings[about].detail
    assert findings[about].remedy is not None
    others = {finding.verdict for name, finding in findings.items() if name != about}
    assert others == {Verdict.OK}
