"""A released request is recorded exactly once, whatever happens in between."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from ackbox.errors import InvalidEvent, Unavailable
from ackbox.model import (
    Accepted,
    Caller,
    Envelope,
    EventId,
    EventKey,
    Handshake,
    InboundRequest,
    QuarantineBudget,
    QuarantineFilter,
    QuarantineId,
    Receipt,
    ReceiptKind,
    Refusal,
    RefusalReason,
    RejectedItem,
    ReleaseKind,
    ReleaseProgress,
    Submission,
    seal,
)
from ackbox.ports import Webhook
from ackbox.quarantine import Drops, Record, Releases
from ackbox.quarantine.keeper import as_refused
from ackbox.telemetry import QuarantineDropped, QuarantineReleased
from support.ledgers.backends import Backend
from support.ledgers.facts import Facts
from support.ledgers.refused import WRONG_SECRET, inbound, refused

AMPLE = QuarantineBudget(1 << 30, 1 << 30)
ANN, BOB = Caller("ann", "10.0.0.1"), Caller("bob")
EVERY = QuarantineFilter()
_bits = count(1)


class Shop:
    """A source whose deliveries are JSON: an object, or a list of items that are numbers. A number
    below zero is a bad item."""

    name = "github"

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.accepts_negative = False
        self.received = 0
        self.on_third: Callable[[], object] = lambda: None

    def receive(self, request: InboundRequest) -> Accepted | Refusal | Handshake:
        self.received += 1
        if self.received == 3:
            self.on_third()
        if request.header("x-signature") != sign(self.secret, request.body):
            return WRONG_SECRET
        content = json.loads(request.body)
        if content == "hello":
            return Handshake(b"hello")
        delivery = self._seal(request, request.body)
        if not isinstance(content, list):
            return Accepted((delivery,))
        bad = [item for item in content if item < 0 and not self.accepts_negative]
        good = [json.dumps([item]).encode() for item in content if item not in bad]
        rejected = [
            RejectedItem(json.dumps([item]).encode(), RefusalReason.UNREADABLE, "Below zero.")
            for item in bad
        ]
        items = [replace(self._seal(request, item), parent_id=delivery.id) for item in good]
        return Accepted((delivery, *items), tuple(rejected))

    def _seal(self, request: InboundRequest, payload: bytes) -> Envelope:
        return seal(
            payload,
            request.received_at,
            lambda width: next(_bits),
            source=self.name,
            idempotency_key=payload.decode(),
            event_type="order",
        )


def sign(secret: bytes, body: bytes) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def signed(body: bytes, secret: bytes = b"right") -> InboundRequest:
    return inbound(body, headers=[("x-signature", sign(secret, body))])


class Stage:
    """A ledger with a quarantine, and an operator who has fixed the secret."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.shop = Shop(b"right")
        self.webhooks: dict[str, Webhook] = {"github": self.shop}
        self.facts = Facts()

    def releases(self, record: Record | None = None) -> Releases:
        return Releases(
            self.backend.store.quarantine,
            self.backend.reader,
            self.webhooks,
            record or self.record,
            budget=AMPLE,
            clock=self.backend.clock,
            observe=self.facts,
        )

    async def record(self, submission: Submission) -> Sequence[Receipt]:
        return await self.backend.store.record([submission])

    async def keep(self, *requests: InboundRequest) -> list[QuarantineId]:
        kept = [replace(refused(), request=request) for request in requests]
        await self.backend.store.quarantine.keep(kept, AMPLE)
        return await self.ids()

    async def receive(self, request: InboundRequest) -> Sequence[Receipt]:
        """Receive a request as the server does."""
        accepted = self.shop.receive(request)
        assert isinstance(accepted, Accepted)
        return await self.record(Submission(accepted.envelopes))

    async def ids(self) -> list[QuarantineId]:
        page = await self.backend.reader.quarantine.page(EVERY, limit=1000)
        return [item.id for item in page.items]

    async def keys(self) -> list[str]:
        return sorted(str(row["idempotency_key"]) for row in await self.backend.rows())

    async def release_all(self, caller: Caller = ANN) -> ReleaseProgress:
        return await last(self.releases().release_matching(EVERY, caller))


async def last(steps: AsyncIterator[ReleaseProgress]) -> ReleaseProgress:
    return [ReleaseProgress(), *[progress async for progress in steps]][-1]


def orders(numbers: Iterable[int]) -> list[InboundRequest]:
    return [signed(b'{"order": %d}' % number) for number in numbers]


@pytest.fixture
def stage(backend: Backend) -> Stage:
    return Stage(backend)


async def test_500_requests_are_released_after_the_secret_is_fixed(stage: Stage) -> None:
    requests = orders(range(500))
    await stage.keep(*requests)
    await asyncio.gather(*(stage.receive(request) for request in requests[100:150]))
    progress = await stage.release_all()
    assert progress == ReleaseProgress(500, released=450, duplicate=50)
    assert await stage.keys() == sorted(request.body.decode() for request in requests)
    assert await stage.ids() == []
    assert await stage.backend.reader.quarantine.usage() == {}
    assert await stage.release_all() == ReleaseProgress()


async def test_a_request_that_still_fails_stays(stage: Stage) -> None:
    (number,) = await stage.keep(signed(b"{}", b"wrong"))
    results = await stage.releases().release_ids([number], ANN)
    assert results[number].kind is ReleaseKind.REFUSED
    assert results[number].detail == WRONG_SECRET.detail
    assert await stage.ids() == [number]
    assert await stage.keys() == []


async def test_a_request_of_an_undeclared_source_stays(stage: Stage) -> None:
    (number,) = await stage.keep(*orders([1]))
    stage.webhooks.clear()
    results = await stage.releases().release_ids([number], ANN)
    assert results[number].kind is ReleaseKind.NO_SOURCE
    assert await stage.ids() == [number]


async def test_a_handshake_stays(stage: Stage) -> None:
    (number,) = await stage.keep(signed(b'"hello"'))
    assert (await stage.releases().release_ids([number], ANN))[number].kind is ReleaseKind.REFUSED


async def test_a_process_that_dies_after_recording_leaves_a_duplicate(stage: Stage) -> None:
    await stage.keep(*orders([1, 2]))

    async def record_and_die(submission: Submission) -> Sequence[Receipt]:
        await stage.record(submission)
        raise Unavailable("The process ended.")

    with pytest.raises(Unavailable):
        await last(stage.releases(record_and_die).release_matching(EVERY, ANN))
    assert len(await stage.ids()) == 2, "they are released when their events are durable"
    assert await stage.release_all() == ReleaseProgress(2, duplicate=2)
    assert await stage.keys() == ['{"order": 1}', '{"order": 2}']
    assert await stage.ids() == []


async def test_two_operators_release_at_once(stage: Stage) -> None:
    await stage.keep(*orders(range(150)))
    done = await asyncio.gather(stage.release_all(ANN), stage.release_all(BOB))
    assert sum(progress.released for progress in done) == 150
    assert len(await stage.keys()) == 150
    assert await stage.ids() == []
    audit = (await stage.backend.reader.audit(limit=1000)).items
    assert len(audit) == 150, "each request is removed once"


async def test_what_was_recorded_is_released_although_another_request_fails(stage: Stage) -> None:
    one, two = await stage.keep(*orders([1, 2]))

    async def record_first(submission: Submission) -> Sequence[Receipt]:
        if submission.envelopes[0].idempotency_key == '{"order": 2}':
            raise Unavailable("The disk is full.")
        return await stage.record(submission)

    with pytest.raises(Unavailable):
        await stage.releases(record_first).release_ids([one, two], ANN)
    assert await stage.ids() == [two]


async def test_a_request_that_cannot_be_stored_stays(stage: Stage) -> None:
    (number,) = await stage.keep(*orders([1]))

    async def refuse(submission: Submission) -> Sequence[Receipt]:
        raise InvalidEvent("The event cannot be stored.")

    results = await stage.releases(refuse).release_ids([number], ANN)
    assert results[number].kind is ReleaseKind.REFUSED
    assert await stage.ids() == [number]


async def test_a_released_event_arrives_when_it_is_released(stage: Stage) -> None:
    (number,) = await stage.keep(*orders([1]))
    stage.backend.clock.advance(days=3)
    (result,) = (await stage.releases().release_ids([number], ANN)).values()
    assert result.event_id is not None
    event = await stage.backend.reader.event(result.event_id)
    assert event is not None
    assert event.created_at == stage.backend.clock()
    (entry,) = (await stage.backend.reader.audit(event_id=result.event_id, limit=10)).items
    assert (entry.actor, entry.peer, entry.detail["did"]) == ("ann", "10.0.0.1", "released")


async def test_a_dry_run_verifies_and_changes_nothing(stage: Stage) -> None:
    await stage.keep(*orders([1, 2]), signed(b"{}", b"wrong"))
    assert await stage.releases().preview(EVERY) == ReleaseProgress(3, released=2, refused=1)
    assert len(await stage.ids()) == 3
    assert await stage.keys() == []


async def test_bad_items_of_a_released_delivery_are_kept(stage: Stage) -> None:
    await stage.keep(signed(b"[1, -2, 3]"))
    assert await stage.release_all() == ReleaseProgress(1, released=1)
    assert await stage.keys() == ["[1, -2, 3]", "[1]", "[3]"]
    (item,) = (await stage.backend.reader.quarantine.page(EVERY, limit=10)).items
    delivery = await stage.backend.reader.event(EventKey("github", "[1, -2, 3]"))
    assert delivery is not None
    assert (item.detail, item.delivery_id) == ("Below zero.", delivery.id)


async def test_a_bad_item_is_released_when_its_source_can_read_it(stage: Stage) -> None:
    await stage.keep(signed(b"[1, -2, 3]"))
    await stage.release_all()
    (number,) = await stage.ids()
    refusal = (await stage.releases().release_ids([number], ANN))[number]
    assert (refusal.kind, refusal.detail) == (ReleaseKind.REFUSED, "Below zero.")
    stage.shop.accepts_negative = True
    assert await stage.release_all() == ReleaseProgress(1, released=1)
    assert await stage.keys() == ["[-2]", "[1, -2, 3]", "[1]", "[3]"]
    assert await stage.ids() == []


async def test_many_items_of_one_delivery_are_verified_and_recorded_once(stage: Stage) -> None:
    await stage.keep(signed(json.dumps([*range(-50, 0)]).encode()))
    await stage.release_all()
    submissions: list[Submission] = []

    async def record(submission: Submission) -> Sequence[Receipt]:
        submissions.append(submission)
        return await stage.record(submission)

    stage.shop.received = 0
    numbers = await stage.ids()
    results = await stage.releases(record).release_ids(numbers, ANN)
    assert {result.detail for result in results.values()} == {"Below zero."}
    assert (len(results), stage.shop.received, submissions) == (50, 1, [])
    stage.shop.accepts_negative = True
    results = await stage.releases(record).release_ids(numbers, ANN)
    assert {result.kind for result in results.values()} == {ReleaseKind.RELEASED}
    assert (len(results), stage.shop.received, len(submissions)) == (50, 2, 1)
    assert await stage.ids() == []


async def test_a_release_that_is_cancelled_stops_before_the_next_request(stage: Stage) -> None:
    await stage.keep(*orders(range(50)))
    release = asyncio.ensure_future(stage.release_all())
    stage.shop.on_third = release.cancel
    with pytest.raises(asyncio.CancelledError):
        await release
    assert stage.shop.received == 3


async def test_an_item_whose_delivery_was_deleted_stays(stage: Stage) -> None:
    item = RejectedItem(b"[-2]", RefusalReason.UNREADABLE, "Below zero.")
    gone = EventId("019ca000-0000-7000-8000-000000000009")
    kept = as_refused("github", signed(b"[1, -2]"), item, gone)
    await stage.backend.store.quarantine.keep([kept], AMPLE)
    (number,) = await stage.ids()
    assert (await stage.releases().release_ids([number], ANN))[number].kind is ReleaseKind.REFUSED


async def test_a_release_is_limited_to_its_filter(stage: Stage) -> None:
    await stage.keep(*orders([1]))
    late = replace(refused(reason=RefusalReason.BAD_TIME), request=orders([2])[0])
    await stage.backend.store.quarantine.keep([late], AMPLE)
    where = QuarantineFilter(source="github", reason=RefusalReason.BAD_TIME)
    progress = await last(stage.releases().release_matching(where, ANN))
    assert progress == ReleaseProgress(1, released=1)
    assert await stage.keys() == ['{"order": 2}']


async def test_a_release_is_reported(stage: Stage) -> None:
    await stage.keep(*orders([1]), signed(b"{}", b"wrong"))
    await stage.release_all()
    assert stage.facts.of(QuarantineReleased) == [QuarantineReleased("ann", 2, 1)]


async def test_requests_are_dropped(stage: Stage) -> None:
    numbers = await stage.keep(*orders(range(3)))
    quarantine = stage.backend.store.quarantine
    drops = Drops(quarantine, stage.backend.reader, observe=stage.facts)
    assert await drops.preview(EVERY) == 3
    assert await drops.drop_ids([numbers[0], QuarantineId(999)], ANN) == {numbers[0]}
    assert [dropped async for dropped in drops.drop_matching(EVERY, BOB)] == [2]
    assert await stage.ids() == []
    assert await stage.keys() == []
    assert sum(fact.requests for fact in stage.facts.of(QuarantineDropped)) == 3
    assert [entry.actor for entry in (await stage.backend.reader.audit(limit=9)).items] == [
        *("bob", "bob", "ann"),
    ]


async def test_a_receipt_of_a_released_request_is_a_duplicate_afterwards(stage: Stage) -> None:
    (request,) = orders([1])
    await stage.keep(request)
    await stage.release_all()
    (receipt,) = await stage.receive(request)
    assert receipt.kind is ReceiptKind.DUPLICATE
