"""Held events go back when a handler exists, whatever the store says first."""

from typing import cast

from ackbox.errors import Unavailable
from ackbox.maintenance import unpark_handled
from ackbox.ports import Operations, Reader
from ackbox.telemetry import WorkerCallFailed
from support.facts import Facts

Type = tuple[str, str]


class Held:
    """So many events of each type, put back at most two at a time."""

    def __init__(self, events: dict[Type, int], failures: int = 0) -> None:
        self.events = events
        self.failures = failures

    async def parked_type(self, after: Type) -> Type | None:
        return next((one for one in sorted(self.events) if one > after and self.events[one]), None)

    async def unpark(self, source: str, event_type: str) -> int:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the disk is away")
        some = min(self.events[source, event_type], 2)
        self.events[source, event_type] -= some
        return some


async def unpark(held: Held, facts: Facts, *handled: str) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await unpark_handled(
        cast("Operations", held),
        cast("Reader", held),
        lambda source, event_type: event_type in handled,
        observe=facts,
        sleep=sleep,
    )
    return slept


async def test_all_events_of_handled_types_go_back_and_no_others() -> None:
    held = Held({("shop", "a"): 5, ("shop", "b"): 1, ("webhooks", "a"): 1})
    assert await unpark(held, Facts(), "a") == []
    assert held.events == {("shop", "a"): 0, ("shop", "b"): 1, ("webhooks", "a"): 0}


async def test_a_store_in_trouble_is_asked_again() -> None:
    held, facts = Held({("shop", "a"): 5}, failures=2), Facts()
    assert await unpark(held, facts, "a") == [1.0, 1.0]
    assert held.events == {("shop", "a"): 0}
    assert len(facts.of(WorkerCallFailed)) == 2
