"""Held events at a start: put back if this instance can do something with them."""

from pathlib import Path

import pytest

from support.polling import eventually
from support.seeding import States, seed
from support.server import running


@pytest.mark.parametrize(("unhandled", "outcome"), [("complete", "ignored"), ("park", "parked")])
def test_held_events_are_put_back_unless_still_nobody_wants_them(
    tmp_path: Path, unhandled: str, outcome: str
) -> None:
    states = States()
    seed(tmp_path / "events.db", states.seed)
    with running(tmp_path, {"WORKER_COUNT": "2", "UNHANDLED": unhandled}) as server:

        def settled() -> bool:
            return server.row(states.pending.id, "outcome") == (outcome,)

        eventually(settled)  # it came before the held one
        eventually(lambda: server.row(states.parked.id, "outcome") == (outcome,))
