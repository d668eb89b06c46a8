"""One running inbox: started in a fixed order (L12), telling how it is, stopped without loss."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from time import monotonic
from typing import Any
from uuid import uuid4

from msgspec import Struct

from ackbox import component_config
from ackbox.app import App
from ackbox.config import cautions
from ackbox.errors import AckboxError, HandlersStuck, Stopped, Unavailable
from ackbox.handlers import Registry
from ackbox.ingest import Ingest
from ackbox.maintenance import Discards, Monitor, Replays, Retention, unpark_handled
from ackbox.model import Release, Stats, WorkerId
from ackbox.ports import EventQueue, Operations, Reader, Store
from ackbox.telemetry import (
    Claimed,
    Fact,
    HandlerAbandoned,
    Settled,
    Started,
    StopBegan,
    StopEnded,
    StoreFailed,
    StoreRecovered,
    to_all,
)
from ackbox.worker import Executor, Heartbeat, LoopProbe, Worker

_WAIT_SECONDS = 1.0
_HELD_SECONDS = 60.0
_HUNG_NAMED = 10
_CANNOT_STORE = "Events cannot be stored."


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class Health(Struct, frozen=True):
    """The process is alive; `critical` means that events have not been storable for a minute, or
    that a background loop has kept failing for one."""

    status: str
    durability: str


class Unready(Struct, frozen=True):
    """Why events are not welcome: `reason` is for everybody, `detail` for operators; it may name
    paths (S24)."""

    reason: str
    detail: str


class Runtime:
    def __init__(self, app: App, registry: Registry, schemas: Sequence[str]) -> None:
        self.settings = app.settings
        self.clock = app.clock
        self.observe = app.observe
        self.logger = app.logger
        self.phase = Phase.STARTING
        self.failure: AckboxError | None = None
        self.failed = asyncio.Event()
        self.operator_token = app.settings.api_token
        self._app = app
        self._waits_for: str | None = None
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._ingest: Ingest | None = None
        self.services = app.services
        self._loops: list[asyncio.Task[None]] = []
        self._loop_probe: LoopProbe | None = None
        self.registry = registry
        app.metrics.add_handlers(registry.names)
        self._schemas = schemas
        self._released = 0
        self._worker: Worker | None = None
        self._heartbeat: Heartbeat | None = None

    async def start(self) -> None:
        """Pragmas asserted and migrations verified as the store opens; then what is there is looked
        at, and only then does the door open."""
        for caution in cautions(self.settings):
            self.logger.warning("caution", reason=caution)
        self._app.packages |= self.registry.packages
        self._store = store = await self._app.open_store(self._fail, self._note_waiting)
        self.operator_token = self._app.ensure_operator_token()
        self._reader = reader = self._app.open_reader()
        newest_age, stats, backlog = await self._look_around(store, reader)
        self._ingest = Ingest(
            store,
            component_config.ingest_limits(self.settings, self._app.backend.batches),
            backlog=backlog,
            observe=self.observe,
            uniform=random.uniform,
        )
        self._ingest.start(self.services)
        watch = self._make_watch(self._ingest, store, reader)
        watch.measure(stats)
        retention = self._make_retention(store, self._ingest)
        retention.pause_if_implausible(newest_age)
        self._loops = [
            self.services.run("monitor", watch.tick_and_wait),
            self.services.run("retention", retention.tick_and_wait, longest_delay=60.0),
        ]
        self._loop_probe = LoopProbe(observe=self.observe, service=self.services.add("loop-probe"))
        if self.settings.worker_count:
            self._start_worker(store.queue)
            self._loops.append(self._start_putting_back(store, reader))
        self.phase = Phase.RUNNING
        self._warn_without_handlers()
        self._tell_of_start(stats, backlog)

    def _tell_of_start(self, stats: Stats, backlog: int) -> None:
        self.observe(
            Started(
                stats,
                stats.lag(self.clock()).total_seconds(),
                self._app.backend.engine,
                self.settings.durability,
                self._app.backend.name,
                self._app.ledger_origin,
                self._why_refused(backlog),
            )
        )

    def _why_refused(self, backlog: int) -> str | None:
        """Why new events are not accepted now. A full queue does not make the inbox unready, but
        senders get 429."""
        if (unready := self.why_not_ready()) is not None:
            return unready.detail
        if backlog < self.settings.queue_maxsize:
            return None
        return f"{backlog} events wait, and QUEUE_MAXSIZE is {self.settings.queue_maxsize}."

    async def _look_around(
        self, store: Store, reader: Reader
    ) -> tuple[timedelta | None, Stats, int]:
        """Users' tables made, what a dead process left made claimable, what waits counted. A
        database that goes away meanwhile is waited for; a disk in trouble would be no better
        after a while."""
        while True:
            try:
                newest_age = await reader.newest_age(self.clock())  # `recover` changes events
                await store.apply_schema(self._schemas)
                await store.recover()
                return newest_age, await reader.stats(), await reader.waiting(self.clock())
            except Unavailable:
                if not self._app.backend.shared:
                    raise
                await asyncio.sleep(_WAIT_SECONDS)

    def _warn_without_handlers(self) -> None:
        if self.settings.worker_count and not len(self.registry):
            self.logger.warning("no handlers", unhandled=self.settings.unhandled)

    def cancel_grace(self) -> None:
        """Whoever stops us will not wait for running handlers any longer."""
        if self._worker is not None:
            self._worker.cancel_grace()

    async def stop(self) -> None:
        """Make durable what was taken, then let go of the ledger."""
        started, was_running = monotonic(), self.phase is Phase.RUNNING
        self.phase = Phase.DRAINING
        if was_running:
            self._tell_of_stop()
        await self._close()
        self.phase = Phase.STOPPED
        if was_running:
            self.observe(StopEnded(self._released, monotonic() - started))

    def _tell_of_stop(self) -> None:
        grace = self.settings.shutdown_grace.total_seconds()
        if self._worker is None:
            self.observe(StopBegan({}, 0, grace))
        else:
            self.observe(StopBegan(self._worker.running, self._worker.queued, grace))

    async def _close(self) -> None:
        if self._worker is not None:
            await self._worker.stop(self.settings.shutdown_grace.total_seconds())
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._ingest is not None:
            await self._ingest.close()
        if self._loop_probe is not None:
            self._loop_probe.stop()
        await _cancel(self._loops)
        if self._reader is not None:
            await self._reader.close()
        if self._store is not None:
            await self._store.close()

    async def read(self, sql: str, params: Mapping[str, object]) -> list[dict[str, Any]]:
        """A user's own question to a user's own tables."""
        return await self.reader.query(sql, params)

    def advertise(self, url: str) -> None:
        """Where this process answers, once that is known."""
        self.operations.advertise(url, workers=self.settings.worker_count)
        self.logger.info("listening", url=url)

    @property
    def ingest(self) -> Ingest:
        if self._ingest is None or self.phase is not Phase.RUNNING:
            raise Stopped(self._state)
        return self._ingest

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            raise Stopped(self._state)
        return self._reader

    @property
    def queue(self) -> EventQueue:
        if self._store is None:
            raise Stopped(self._state)
        return self._store.queue

    @property
    def operations(self) -> Operations:
        if self._store is None:
            raise Stopped(self._state)
        return self._store

    @property
    def replays(self) -> Replays:
        return Replays(self.operations, self.reader, clock=self.clock, observe=self.observe)

    @property
    def discards(self) -> Discards:
        return Discards(self.operations, self.reader, clock=self.clock, observe=self.observe)

    def metrics(self) -> tuple[bytes, str]:
        return self._app.metrics.render(), self._app.metrics_content_type

    def health(self) -> Health:
        critical = self._ingest is not None and self._ingest.critical
        critical = critical or self.services.is_critical or self.failure is not None
        return Health("critical" if critical else "ok", self.settings.durability)

    def why_not_ready(self) -> Unready | None:
        """None when events are welcome."""
        if self.phase is not Phase.RUNNING:
            return Unready(self._state, self._state)
        if self.failure is not None:
            return Unready("The inbox failed, and stops.", str(self.failure))
        unavailable_reason = None if self._store is None else self._store.unavailable_reason
        if unavailable_reason is None and not self.ingest.failing:
            return None
        return Unready(_CANNOT_STORE, unavailable_reason or self.ingest.failure or _CANNOT_STORE)

    @property
    def _state(self) -> str:
        """As senders may read it."""
        waiting = self.phase is Phase.STARTING and self._waits_for is not None
        return f"The inbox is {self.phase}." + (f" {self._waits_for}" if waiting else "")

    def _note_waiting(self, fact: Fact) -> None:
        """For a start that waits for its store has none yet that could be asked."""
        match fact:
            case StoreFailed(_, told):
                self._waits_for = told
            case StoreRecovered():
                self._waits_for = None
            case _:
                pass

    def _fail(self, error: AckboxError, **details: str | None) -> None:
        """Of the store, or of the workers: the process drains and ends."""
        self.failure = error
        self.logger.critical("the inbox failed", reason=str(error), **details)
        self.failed.set()

    def _end_if_stuck(self, fact: Fact) -> None:
        """As many as there are workers: whatever hangs there will not come back by itself."""
        if not isinstance(fact, HandlerAbandoned) or self.failure is not None:
            return
        count = len(fact.hung)
        if count >= self.settings.worker_count:
            named = ", ".join(fact.hung[-_HUNG_NAMED:])
            more = f", and {count - _HUNG_NAMED} more" if count > _HUNG_NAMED else ""
            stuck = HandlersStuck(f"{count} handlers hang and cannot be ended: {named}{more}.")
            self._fail(stuck, stack=fact.stack)

    def make_executor(
        self, note_error: Callable[[BaseException], None] = lambda error: None
    ) -> Executor:
        return Executor(
            policy=component_config.run_policy(self.settings),
            clock=self.clock,
            logger=lambda claim: self.logger.bind(event_id=claim.id, request_id=claim.request_id),
            observe=to_all(self.observe, self._end_if_stuck, on_error=self._app.on_observer_error),
            guard=self.services.add("run-timeouts").guard,
            note_error=note_error,
        )

    def _start_worker(self, queue: EventQueue) -> None:
        self._worker = Worker(
            queue,
            self.registry,
            self.make_executor(),
            component_config.worker_config(self.settings),
            worker_id=WorkerId(uuid4().hex),
            clock=self.clock,
            observe=to_all(self.observe, self._count_work, on_error=self._app.on_observer_error),
        )
        self._heartbeat = Heartbeat(
            queue,
            self._worker.held,
            lease=self.settings.claim_timeout,
            lose=self._worker.lose,
            observe=self.observe,
            service=self.services.add("heartbeat"),
        )
        self._worker.start(self.services)

    def _count_work(self, fact: Fact) -> None:
        """What is claimed waits no longer, what is handed back waits again (W7)."""
        if self._ingest is None:
            return
        match fact:
            case Claimed(claims):
                self._ingest.note_claimed(sum(c.attempts == 1 and not c.unsettled for c in claims))
            case Settled(_, _, written):
                back = [outcome for outcome in written.values() if isinstance(outcome, Release)]
                if self.phase is Phase.DRAINING:
                    self._released += len(back)
                self._ingest.note_claimed(-sum(not outcome.parked for outcome in back))
            case _:
                pass

    def _make_watch(self, ingest: Ingest, store: Store, reader: Reader) -> Monitor:
        async def recount() -> None:
            before = ingest.recorded
            ingest.recount(await reader.waiting(self.clock()), before)

        return Monitor(
            store,
            reader,
            observe=self.observe,
            ingest_state=ingest,
            recount=recount,
            clock_steps=self._app.clock_steps,
        )

    def _start_putting_back(self, store: Store, reader: Reader) -> asyncio.Task[None]:
        """Once; or, where another instance without that handler may hold more, every minute."""

        def handles(source: str, event_type: str) -> bool:
            """Unless they are to be held, also those that no handler takes: they complete."""
            holding = self.settings.unhandled == "park"
            return not holding or self.registry.find(source, event_type) is not None

        async def unpark() -> None:
            await unpark_handled(store, reader, handles, observe=self.observe)

        async def put_back_and_wait() -> None:
            await unpark()
            await asyncio.sleep(_HELD_SECONDS)

        if self._app.backend.shared:
            return self.services.run("parked-events", put_back_and_wait)
        return self.services.run_once("parked-events", unpark)

    def _make_retention(self, store: Store, ingest: Ingest) -> Retention:
        seen = ingest.recorded

        def is_busy() -> bool:
            """Something was recorded since this was asked last."""
            nonlocal seen
            before, seen = seen, ingest.recorded
            return seen != before

        return Retention(
            store,
            component_config.retention_policy(self.settings),
            interval=timedelta(hours=self.settings.cleanup_interval_hours),
            observe=self.observe,
            is_busy=is_busy,
        )


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
