"""One running inbox: started in a fixed order (L12), telling how it is, stopped without loss."""

import asyncio
import random
from enum import StrEnum

from msgspec import Struct

from ackbox.app import App
from ackbox.config import cautions
from ackbox.errors import AckboxError, Stopped
from ackbox.ingest import Ingest, Limits
from ackbox.ports import Reader, Store, Upkeep
from ackbox.telemetry import Observer, Started
from ackbox.upkeep import Watch


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class Health(Struct, frozen=True):
    """The process is alive; `critical` means that events have not been storable for a while."""

    status: str
    durability: str


class Runtime:
    def __init__(self, app: App) -> None:
        self.settings = app.settings
        self.clock = app.clock
        self.observe = app.observe
        self.logger = app.logger
        self.phase = Phase.STARTING
        self.failure: AckboxError | None = None
        self.failed = asyncio.Event()
        self._app = app
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._ingest: Ingest | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Pragmas asserted and migrations verified as the store opens; then what is there is looked
        at, and only then does the door open."""
        for caution in cautions(self.settings):
            self.logger.warning("caution", reason=caution)
        self._store = store = await self._app.open_store(self._fail)
        self._reader = reader = self._app.open_reader()
        stats = await reader.stats()
        self._ingest = Ingest(
            store,
            self._limits(),
            backlog=stats.pending,
            observe=self.observe,
            uniform=random.uniform,
        )
        watch = _watch(self._ingest, store, reader, self.observe)
        watch.measure(stats)
        self._watch = asyncio.create_task(watch.run())
        self.phase = Phase.RUNNING
        self.observe(
            Started(
                stats,
                stats.lag(self.clock()).total_seconds(),
                self._app.sqlite_version,
                self.settings.durability,
            )
        )

    async def stop(self) -> None:
        """Make durable what was taken, then let go of the ledger."""
        self.phase = Phase.DRAINING
        if self._ingest is not None:
            await self._ingest.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._reader is not None:
            await self._reader.close()
        if self._store is not None:
            await self._store.close()
        self.phase = Phase.STOPPED

    def announce(self, url: str) -> None:
        """Where this process answers, once that is known."""
        self.upkeep.announce(url)
        self.logger.info("listening", url=url)

    @property
    def ingest(self) -> Ingest:
        if self._ingest is None or self.phase is not Phase.RUNNING:
            raise Stopped(f"The inbox is {self.phase}.")
        return self._ingest

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            raise Stopped(f"The inbox is {self.phase}.")
        return self._reader

    @property
    def upkeep(self) -> Upkeep:
        if self._store is None:
            raise Stopped(f"The inbox is {self.phase}.")
        return self._store

    def metrics(self) -> tuple[bytes, str]:
        return self._app.metrics.render(), self._app.metrics_content_type

    def health(self) -> Health:
        critical = self._ingest is not None and self._ingest.critical
        return Health("critical" if critical or self.failure else "ok", self.settings.durability)

    def why_not_ready(self) -> str | None:
        """None when events are welcome."""
        if self.phase is not Phase.RUNNING:
            return f"The inbox is {self.phase}."
        if self.ingest.failing:
            return "Events cannot be stored."
        return None if self._store is None else self._store.trouble

    def _fail(self, error: AckboxError) -> None:
        self.failure = error
        self.logger.critical("the store failed", reason=str(error))
        self.failed.set()

    def _limits(self) -> Limits:
        return Limits(
            buffer_events=self.settings.ingest_buffer,
            buffer_bytes=self.settings.ingest_buffer_bytes,
            queue_events=self.settings.queue_maxsize,
            timeout=self.settings.ingest_timeout.total_seconds(),
        )


def _watch(ingest: Ingest, store: Store, reader: Reader, observe: Observer) -> Watch:
    return Watch(
        store,
        reader,
        observe=observe,
        buffered=lambda: ingest.buffered,
        failing=lambda: ingest.failing,
        note_writable=ingest.note_writable,
    )
