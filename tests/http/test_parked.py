"""Parked events at a start: unparked if this instance can run or complete them."""

from pathlib import Path

import pytest

from support.ledgers.seeding import States, seed
from support.servers.server import running
from support.time.polling import eventually


@pytest.mark.parametrize(("unhandled", "outcome"), [("complete", "ignored"), ("park", "parked")])
def test_parked_events_are_unparked_unless_still_no_handler_takes_them(
    tmp_path: Path, unhandled: str, outcome: str
) -> None:
    states = States()
    seed(tmp_path / "events.db", states.seed)
    with running(tmp_path, {"WORKER_COUNT": "2", "UNHANDLED": unhandled}) as server:

        def settled() -> bool:
            return server.row(states.pending.id, "outcome") == (outcome,)

        eventually(settled)  # this event is older than the parked one
        eventually(lambda: server.row(states.parked.id, "outcome") == (outcome,))
