"""Parked events are unparked when a handler exists, even if the store fails first."""

from typing import cast

from ackbox.errors import Unavailable
from ackbox.maintenance import unpark_handled
from ackbox.ports import Operations, Reader
from ackbox.telemetry import WorkerCallFailed
from support.ledgers.facts import Facts

Type = tuple[str, str]


class Parked:
    """A store with these numbers of parked events by type; a call unparks at most two."""

    def __init__(self, events: dict[Type, int], failures: int = 0) -> None:
        self.events = events
        self.failures = failures

    async def parked_type(self, after: Type) -> Type | None:
        return next((key for key in sorted(self.events) if key > after and self.events[key]), None)

    async def unpark(self, source: str, event_type: str) -> int:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the disk is away")
        count = min(self.events[source, event_type], 2)
        self.events[source, event_type] -= count
        return count


async def unpark(parked: Parked, facts: Facts, *handled: str) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await unpark_handled(
        cast("Operations", parked),
        cast("Reader", parked),
        lambda source, event_type: event_type in handled,
        observe=facts,
        sleep=sleep,
    )
    return slept


async def test_all_events_of_handled_types_are_unparked_and_no_others() -> None:
    parked = Parked({("shop", "a"): 5, ("shop", "b"): 1, ("webhooks", "a"): 1})
    assert await unpark(parked, Facts(), "a") == []
    assert parked.events == {("shop", "a"): 0, ("shop", "b"): 1, ("webhooks", "a"): 0}


async def test_an_unavailable_store_is_tried_again() -> None:
    parked, facts = Parked({("shop", "a"): 5}, failures=2), Facts()
    assert await unpark(parked, facts, "a") == [1.0, 1.0]
    assert parked.events == {("shop", "a"): 0}
    assert len(facts.of(WorkerCallFailed)) == 2
