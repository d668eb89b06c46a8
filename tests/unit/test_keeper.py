"""The keeper keeps refused requests in batches, and never delays or fails a response."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from ackbox.errors import Unavailable
from ackbox.model import (
    EventId,
    QuarantineBudget,
    QuarantineUsage,
    RefusalReason,
    RefusedRequest,
    RejectedItem,
)
from ackbox.quarantine import Keeper, RefusalRates
from ackbox.telemetry import Quarantined, QuarantineMeasured, SourceRefused
from support.ledgers.facts import Facts
from support.ledgers.refused import WRONG_SECRET, inbound

UNSIGNED = replace(WRONG_SECRET, reason=RefusalReason.UNSIGNED, keep=False)


class Kept:
    """A quarantine in memory, which keeps at most `room` requests and fails first as it is told."""

    def __init__(self, room: int = 1_000_000, failures: Sequence[Exception] = ()) -> None:
        self.batches: list[list[RefusedRequest]] = []
        self.budgets: list[QuarantineBudget] = []
        self.room = room
        self.failures = [*failures]
        self.hangs = False

    async def keep(
        self, requests: Sequence[RefusedRequest], budget: QuarantineBudget
    ) -> list[bool]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)
        self.budgets.append(budget)
        fits = [len(self.requests) + n < self.room for n in range(len(requests))]
        self.batches.append([r for r, fit in zip(requests, fits, strict=True) if fit])
        return fits

    async def usage(self) -> Mapping[str, QuarantineUsage]:
        return {}

    @property
    def requests(self) -> list[RefusedRequest]:
        return [request for batch in self.batches for request in batch]


class Stage:
    def __init__(self, kept: Kept, sources: int = 2, total: int = 64 << 20) -> None:
        self.kept = kept
        self.facts = Facts()
        self.slept: list[float] = []
        self.now = 1000.0
        self.keeper = Keeper(
            kept,  # type: ignore[arg-type]
            kept,  # type: ignore[arg-type]
            QuarantineBudget.in_equal_shares(total, sources),
            sources=sources,
            observe=self.facts,
            rates=RefusalRates(monotonic=lambda: self.now),
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def refuse(self, count: int = 1, source: str = "github", body: bytes = b"{}") -> None:
        for _ in range(count):
            self.keeper.refuse(source, inbound(body), WRONG_SECRET)

    @property
    def dropped(self) -> int:
        return sum(fact.dropped for fact in self.facts.of(Quarantined))


async def test_refused_requests_are_kept_in_batches() -> None:
    stage = Stage(Kept())
    stage.refuse(250)
    await stage.keeper.keep_buffered()
    assert [len(batch) for batch in stage.kept.batches] == [100, 100, 50]
    assert len(stage.slept) == 3, "between two batches, the writer is left to events"
    assert stage.dropped == 0


async def test_a_batch_is_limited_in_bytes_but_holds_one_large_request() -> None:
    stage = Stage(Kept())
    stage.refuse(3, body=bytes(600_000))
    stage.refuse(1, source="stripe", body=bytes(2_000_000))
    await stage.keeper.keep_buffered()
    assert [len(batch) for batch in stage.kept.batches] == [1, 1, 1, 1]


async def test_a_request_without_a_signature_is_counted_and_not_kept() -> None:
    stage = Stage(Kept())
    stage.keeper.refuse("github", inbound(), UNSIGNED)
    await stage.keeper.keep_buffered()
    assert stage.kept.requests == []
    assert stage.facts.of(SourceRefused) == [SourceRefused("github", RefusalReason.UNSIGNED)]


async def test_a_bad_item_is_kept_with_its_reason_and_parent() -> None:
    stage = Stage(Kept())
    item = RejectedItem(b'{"entry": [2]}', RefusalReason.UNREADABLE, "The item has no id.")
    stage.keeper.reject("github", inbound(b'{"entry": [1, 2]}'), [item], EventId("parent"))
    await stage.keeper.keep_buffered()
    (kept,) = stage.kept.requests
    assert (kept.request.body, kept.reason, kept.delivery_id) == (item.body, item.reason, "parent")
    assert kept.request.headers == inbound().headers


async def test_each_source_has_an_equal_share() -> None:
    stage = Stage(Kept(), sources=4, total=4000)
    stage.refuse(source="a")
    await stage.keeper.keep_buffered()
    assert stage.kept.budgets == [QuarantineBudget(4000, 1000)]


async def test_a_flood_of_one_source_leaves_room_in_memory_for_another() -> None:
    stage = Stage(Kept())
    stage.kept.hangs = True
    stage.refuse(20, body=bytes(1 << 20))
    assert stage.dropped == 17, "half of the buffer holds three requests of 1 MiB"
    stage.refuse(source="stripe")
    assert stage.dropped == 17


async def test_one_request_may_be_larger_than_the_share_of_memory() -> None:
    stage = Stage(Kept(), sources=20)
    stage.refuse(2, body=bytes(1 << 20))
    await stage.keeper.keep_buffered()
    assert (len(stage.kept.requests), stage.dropped) == (1, 1)
    stage.refuse(1, body=bytes(4 << 20))
    await stage.keeper.keep_buffered()
    assert (len(stage.kept.requests), stage.dropped) == (2, 1)


async def test_large_requests_of_many_sources_stay_within_the_budget() -> None:
    stage = Stage(Kept(), sources=20, total=10 << 20)
    for n in range(20):
        stage.refuse(source=f"source-{n}", body=bytes(1 << 20))
    assert stage.dropped == 11, "nine requests of 1 MiB and their headers fit into 10 MiB"


async def test_a_loss_has_its_reason() -> None:
    stage = Stage(Kept(room=1), sources=20)
    stage.refuse(1, body=bytes(33 << 20))
    stage.refuse(2, body=bytes(1 << 20))
    await stage.keeper.keep_buffered()
    stage.refuse()
    await stage.keeper.keep_buffered()
    stage.kept.failures = [ValueError("bad")]
    stage.refuse()
    with pytest.raises(ValueError, match="bad"):
        await stage.keeper.keep_buffered()
    losses = [fact.loss for fact in stage.facts.of(Quarantined) if fact.dropped]
    assert [loss.name for loss in losses] == ["TOO_LARGE", "NO_MEMORY", "FULL", "NOT_WRITTEN"]


async def test_with_a_budget_of_zero_requests_are_only_counted() -> None:
    stage = Stage(Kept(), total=0)
    stage.refuse(3)
    await stage.keeper.keep_buffered()
    assert (stage.kept.requests, stage.facts.of(Quarantined)) == ([], [])
    assert len(stage.facts.of(SourceRefused)) == 3


async def test_requests_that_do_not_fit_are_counted_by_source() -> None:
    stage = Stage(Kept(room=2))
    stage.refuse(2)
    stage.refuse(1, source="stripe")
    await stage.keeper.keep_buffered()
    assert stage.facts.of(Quarantined) == [Quarantined("github", 2, 0), Quarantined("stripe", 0, 1)]


async def test_requests_wait_in_memory_while_the_store_is_away() -> None:
    stage = Stage(Kept(failures=[Unavailable("away")]))
    stage.refuse(3)
    await stage.keeper.wait_and_keep()
    assert (stage.kept.requests, stage.slept) == ([], [1.0])
    await stage.keeper.wait_and_keep()
    assert len(stage.kept.requests) == 3
    assert stage.dropped == 0


async def test_requests_that_the_store_can_never_keep_are_dropped() -> None:
    stage = Stage(Kept(failures=[ValueError("never")]))
    stage.refuse(3)
    with pytest.raises(ValueError, match="never"):
        await stage.keeper.keep_buffered()
    assert stage.dropped == 3
    stage.refuse()
    await stage.keeper.keep_buffered()
    assert len(stage.kept.requests) == 1


async def test_a_stop_keeps_what_is_in_memory() -> None:
    stage = Stage(Kept())
    stage.refuse(2)
    await stage.keeper.close()
    assert len(stage.kept.requests) == 2


async def test_a_stop_during_an_outage_counts_what_is_lost() -> None:
    stage = Stage(Kept(failures=[Unavailable("away")]))
    stage.refuse(2)
    await stage.keeper.close()
    assert stage.dropped == 2


async def test_the_usage_is_measured_at_the_start_and_after_each_batch() -> None:
    stage = Stage(Kept())
    await stage.keeper.wait_and_keep()
    assert stage.facts.of(QuarantineMeasured) == [QuarantineMeasured({})]
    with pytest.raises(TimeoutError):  # it waits for a request
        await asyncio.wait_for(stage.keeper.wait_and_keep(), 0.01)
    stage.refuse()
    await stage.keeper.wait_and_keep()
    assert len(stage.facts.of(QuarantineMeasured)) == 2


def test_the_rate_forgets_refusals_after_a_minute() -> None:
    now = 1000.0
    rates = RefusalRates(monotonic=lambda: now)
    for _ in range(3):
        rates.note("github")
    now += 30
    rates.note("stripe")
    assert rates.last_minute() == {"github": 3, "stripe": 1}
    now += 31
    assert rates.last_minute() == {"stripe": 1}
    now += 3600
    assert rates.last_minute() == {}
