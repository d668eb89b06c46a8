"""One running inbox: its start in a fixed order (L12), its health, and its stop without loss."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from uuid import uuid4

from ackbox import component_config
from ackbox.app import App, Description
from ackbox.config import cautions
from ackbox.errors import (
    OUTAGES,
    AckboxError,
    HandlersStuck,
    Stopped,
)
from ackbox.handlers import Registry
from ackbox.health import Health, Phase, Unready
from ackbox.ingest import Ingest
from ackbox.maintenance import Discards, Monitor, Mover, Replays, Retention, unpark_handled
from ackbox.model import (
    QuarantineBudget,
    Stats,
    UserTables,
    WorkerId,
)
from ackbox.ports import EventQueue, Reader, Store
from ackbox.quarantine import Drops, Keeper, Releases
from ackbox.telemetry import (
    Fact,
    HandlerAbandoned,
    Started,
    StopBegan,
    StopEnded,
    StoreFailed,
    StoreRecovered,
    combine_observers,
)
from ackbox.worker import Executor, Heartbeat, LoopProbe, Worker

_HUNG_NAMED = 10
_RETRYING = "The database failed while tables were prepared; the start tries again."
_CANNOT_STORE = "Events cannot be stored."


class Runtime:
    def __init__(self, app: App, registry: Registry, tables: UserTables) -> None:
        self.settings = app.settings
        self.sources = app.sources
        self.clock = app.clock
        self.observe = app.observe
        self.logger = app.logger
        self.phase = Phase.STARTING
        self.failure: AckboxError | None = None
        self.failed = asyncio.Event()
        self.operator_token = app.settings.api_token
        self._app = app
        self._outage: str | None = None
        self._retry_reason: str | None = None
        self._urls: asyncio.Queue[str] = asyncio.Queue()
        self._store: Store | None = None
        self._ingest: Ingest | None = None
        self.services = app.services
        self.loop: asyncio.AbstractEventLoop | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._loop_probe: LoopProbe | None = None
        self.registry = registry
        app.metrics.add_handlers(registry.names)
        self._tables = tables
        self._released = 0
        self._worker: Worker | None = None
        self._heartbeat: Heartbeat | None = None
        self._keeper: Keeper | None = None

    async def start(self) -> None:
        """Open the store, read its state, start the services, and only then accept events.

        Opening the store asserts its pragmas and verifies its migrations.
        """
        self.loop = asyncio.get_running_loop()
        for caution in cautions(self.settings):
            self.logger.warning("caution", reason=caution)
        self._app.packages |= self.registry.packages
        self._store = store = await self._app.open_store(self._fail, self._note_outage, self._urls)
        self.operator_token = self._app.ensure_operator_token()
        stats, backlog = await self._prepare_store(store)
        if self._retry_reason is not None:
            self.observe(StoreRecovered())
        ledger = self._app.backend.describe()
        self._ingest = ingest = self._make_ingest(store, ledger.batches, backlog)
        monitor, retention = self._make_monitor(store, ingest), self._make_retention(store, ingest)
        self.mover = Mover(store.submissions, ingest)
        monitor.measure(stats)
        retention.pause_if_implausible(stats.newest_age)
        ingest.start(self.services)
        if self.sources.webhooks:
            self._keeper = self._make_keeper(store)
            self._keeper.start(self.services)
        self._loops = [
            self.services.run("monitor", monitor.tick_and_wait),
            self.services.run("submissions", self.mover.wait_and_move),
            self.services.run("retention", retention.tick_and_wait, longest_delay=60.0),
        ]
        self._loop_probe = LoopProbe(observe=self.observe, service=self.services.add("loop-probe"))
        if self.settings.worker_count:
            self._start_worker(store.queue, ingest)
            pause = self._app.unpark_seconds
            self._loops.append(self.services.run("parked-events", self._unpark, pause=pause))
        self.phase = Phase.RUNNING
        self._warn_without_handlers()
        self._report_start(ledger, stats, backlog)

    def _report_start(self, ledger: Description, stats: Stats, backlog: int) -> None:
        self.observe(
            Started(
                stats,
                stats.lag(self.clock()).total_seconds(),
                ledger.engine,
                self.settings.durability,
                ledger.name,
                self._app.ledger_origin,
                self._why_refused(backlog),
            )
        )

    def _why_refused(self, backlog: int) -> str | None:
        """Return why new events are refused now, or None. A full queue does not make the inbox
        unready, but senders get 429."""
        if (unready := self.why_not_ready()) is not None:
            return unready.detail
        if backlog < self.settings.queue_maxsize:
            return None
        return f"{backlog} events wait, and QUEUE_MAXSIZE is {self.settings.queue_maxsize}."

    async def _prepare_store(self, store: Store) -> tuple[Stats, int]:
        """Create and migrate the users' tables, and read the counts and the backlog."""
        while True:
            try:
                tables = self._tables
                for name in await store.apply_tables(tables.schemas, tables.migrations):
                    self.logger.info("migration applied", migration=name)
                now, reader = self.clock(), store.reader
                return await reader.stats(now), await reader.waiting(now)
            except OUTAGES as error:
                await self._app.backend.wait_after(error)
                self._report_retry(str(error))

    def _report_retry(self, reason: str) -> None:
        """Report once why the start tries again. The store may be available: users' tables are
        changed on a connection of their own."""
        if self._retry_reason != reason:
            self._retry_reason = reason
            self.observe(StoreFailed(reason, _RETRYING))

    def _warn_without_handlers(self) -> None:
        if self.settings.worker_count and not len(self.registry):
            self.logger.warning("no handlers", unhandled=self.settings.unhandled)

    def cancel_grace(self) -> None:
        """Make `stop` wait no longer for running handlers."""
        if self._worker is not None:
            self._worker.cancel_grace()

    async def stop(self) -> None:
        """Make the accepted events durable, then close the ledger."""
        started, was_running = monotonic(), self.phase is Phase.RUNNING
        self.phase = Phase.DRAINING
        if was_running:
            self._report_stop()
        await self._close()
        self.phase = Phase.STOPPED
        if was_running:
            self.observe(StopEnded(self._released, monotonic() - started))

    def _report_stop(self) -> None:
        grace = self.settings.shutdown_grace.total_seconds()
        if self._worker is None:
            self.observe(StopBegan({}, 0, grace))
        else:
            self.observe(StopBegan(self._worker.running, self._worker.queued, grace))

    async def _close(self) -> None:
        if self._worker is not None:
            grace = self.settings.shutdown_grace.total_seconds()
            self._released = await self._worker.stop(grace)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._ingest is not None:
            await self._ingest.close()
        if self._keeper is not None:
            await self._keeper.close()
        if self._loop_probe is not None:
            self._loop_probe.stop()
        await _cancel(self._loops)
        if self._store is not None:
            await self._store.close()

    def advertise(self, url: str) -> None:
        """Publish the URL of this process, once it is known, to the services of the store."""
        self._urls.put_nowait(url)
        self.logger.info("listening", url=url)

    @property
    def ingest(self) -> Ingest:
        if self._ingest is None or self.phase is not Phase.RUNNING:
            raise Stopped(self.state)
        return self._ingest

    @property
    def keeper(self) -> Keeper:
        """The keeper of the requests that sources refused."""
        if self._keeper is None:
            raise Stopped(self.state)
        return self._keeper

    @property
    def reader(self) -> Reader:
        return self.store.reader

    @property
    def queue(self) -> EventQueue:
        return self.store.queue

    @property
    def store(self) -> Store:
        if self._store is None:
            raise Stopped(self.state)
        return self._store

    @property
    def replays(self) -> Replays:
        return Replays(self.store, self.reader, clock=self.clock, observe=self.observe)

    @property
    def discards(self) -> Discards:
        return Discards(self.store, self.reader, clock=self.clock, observe=self.observe)

    @property
    def releases(self) -> Releases:
        return Releases(
            self.store.quarantine,
            self.reader,
            self.sources.webhooks,
            self.ingest.submit,
            budget=self._quarantine_budget,
            clock=self.clock,
            observe=self.observe,
        )

    @property
    def drops(self) -> Drops:
        return Drops(self.store.quarantine, self.reader, observe=self.observe)

    def refusals(self) -> Mapping[str, int]:
        """Return the refusals of the last minute, by source."""
        counts = Counter[str]() if self._keeper is None else self._keeper.rates.last_minute()
        return {source: counts[source] for source in self.sources.webhooks}

    def metrics(self) -> tuple[bytes, str]:
        return self._app.metrics.render(), self._app.metrics.content_type

    def health(self) -> Health:
        critical = self._ingest is not None and self._ingest.critical
        critical = critical or self.services.is_critical or self.failure is not None
        return Health("critical" if critical else "ok", self.settings.durability)

    def why_not_ready(self) -> Unready | None:
        """Return why events are not accepted, or None if they are."""
        if self.phase is not Phase.RUNNING:
            return Unready(self.state, self.state)
        if self.failure is not None:
            return Unready("The inbox failed and is stopping.", str(self.failure))
        unavailable_reason = None if self._store is None else self._store.unavailable_reason
        if unavailable_reason is None and not self.ingest.failing:
            return None
        return Unready(_CANNOT_STORE, unavailable_reason or self.ingest.failure or _CANNOT_STORE)

    @property
    def state(self) -> str:
        """The phase in a sentence that senders may read."""
        reason = self._outage or (self._retry_reason and _RETRYING)
        waiting = self.phase is Phase.STARTING and reason is not None
        return f"The inbox is {self.phase}." + (f" {reason}" if waiting else "")

    def _note_outage(self, fact: Fact) -> None:
        """Remember why the start waits: there is no store yet whose reason could be read."""
        match fact:
            case StoreFailed(_, reason):
                self._outage = reason
            case StoreRecovered():
                self._outage = None
            case _:
                pass

    def _fail(self, error: AckboxError, **details: str | None) -> None:
        """Record a failure of the store or of the workers: the process drains and exits."""
        self.failure = error
        self.logger.critical("the inbox failed", reason=str(error), **details)
        self.failed.set()

    def _end_if_stuck(self, fact: Fact) -> None:
        """Fail when as many handlers hang as there are workers: they will not end by themselves."""
        if not isinstance(fact, HandlerAbandoned) or self.failure is not None:
            return
        count = len(fact.hung)
        if count >= self.settings.worker_count:
            names = ", ".join(fact.hung[-_HUNG_NAMED:])
            more = f", and {count - _HUNG_NAMED} more" if count > _HUNG_NAMED else ""
            stuck = HandlersStuck(f"{count} handlers hang and cannot be ended: {names}{more}.")
            self._fail(stuck, stack=fact.stack)

    def make_executor(
        self, note_error: Callable[[BaseException], None] = lambda error: None
    ) -> Executor:
        return Executor(
            policy=component_config.run_policy(self.settings),
            clock=self.clock,
            logger=lambda claim: self.logger.bind(event_id=claim.id, request_id=claim.request_id),
            observe=combine_observers(
                self.observe, self._end_if_stuck, on_error=self._app.on_observer_error
            ),
            guard=self.services.add("run-timeouts").guard,
            note_error=note_error,
        )

    def _start_worker(self, queue: EventQueue, backlog: Ingest) -> None:
        self._worker = Worker(
            queue,
            self.registry,
            self.make_executor(),
            component_config.worker_config(self.settings, WorkerId(uuid4().hex)),
            backlog=backlog,
            clock=self.clock,
            observe=self.observe,
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

    def _make_ingest(self, store: Store, batches: int, backlog: int) -> Ingest:
        return Ingest(
            store,
            component_config.ingest_limits(self.settings, batches),
            backlog=backlog,
            observe=self.observe,
            uniform=random.uniform,
        )

    @property
    def _quarantine_budget(self) -> QuarantineBudget:
        return component_config.quarantine_budget(self.settings, len(self.sources.webhooks))

    def _make_keeper(self, store: Store) -> Keeper:
        return Keeper(
            store.quarantine,
            store.reader.quarantine,
            self._quarantine_budget,
            sources=len(self.sources.webhooks),
            observe=self.observe,
        )

    def _make_monitor(self, store: Store, ingest: Ingest) -> Monitor:
        return Monitor(
            store,
            store.reader,
            ingest,
            clock=self.clock,
            clock_steps=self._app.clock_steps,
            observe=self.observe,
        )

    async def _unpark(self) -> None:
        """Unpark what this instance handles. On a shared database, another instance without the
        handler may park more events later."""
        await unpark_handled(self.store, self.reader, self._handles, observe=self.observe)

    def _handles(self, source: str, event_type: str) -> bool:
        """Return True for every type with `UNHANDLED=complete`: events without a handler are
        unparked too, and the worker completes them as `ignored`."""
        parks = self.settings.unhandled == "park"
        return not parks or self.registry.find(source, event_type) is not None

    def _make_retention(self, store: Store, ingest: Ingest) -> Retention:
        return Retention(
            store,
            component_config.retention_policy(self.settings),
            interval=timedelta(hours=self.settings.cleanup_interval_hours),
            observe=self.observe,
            recorded=lambda: ingest.recorded,
        )


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
