"""When a suspect runs alone, and when it has no attempt left (ADR 18)."""

import pytest

from ackbox.model import EventId, Suspect
from ackbox.worker.suspects import is_spent, must_run_alone

LIMIT = 5


def suspect(attempts: int, unsettled: int) -> Suspect:
    """Return a suspect with the counts that its next claim will have."""
    return Suspect(EventId("killer"), "webhooks", "webhook", attempts, unsettled)


@pytest.mark.parametrize(
    ("attempts", "unsettled", "alone"),
    [
        (LIMIT - 1, 9, False),  # an attempt is left after this one
        (LIMIT, 2, False),  # a third crash in a row does not end an event
        (LIMIT, 3, True),  # the fourth does
        (LIMIT, 4, True),
        (LIMIT + 1, 3, True),  # the limit was lowered: one last run
        (LIMIT + 1, 4, False),  # spent: it does not run at all
    ],
)
def test_the_attempt_that_could_be_the_last_runs_alone(
    attempts: int, unsettled: int, alone: bool
) -> None:  # S9, F58
    assert must_run_alone(suspect(attempts, unsettled), LIMIT) is alone


@pytest.mark.parametrize(
    ("attempts", "unsettled", "spent"),
    [(LIMIT, 9, False), (LIMIT + 1, 3, False), (LIMIT + 1, 4, True)],
)
def test_only_four_ended_runs_past_the_limit_leave_no_attempt(
    attempts: int, unsettled: int, spent: bool
) -> None:  # S9, F58
    assert is_spent(suspect(attempts, unsettled), LIMIT) is spent
