"""If exporters or background loops raise, events are still accepted, run, settled and timed out.
The operator is informed (S26, F56)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from ackbox import Event, Inbox
from ackbox import runtime as runtime_module
from ackbox.app import App, build_sources
from ackbox.config import Settings, SourceTable
from ackbox.maintenance import Monitor
from ackbox.model import EventId, EventRecord, Status
from ackbox.runtime import Runtime
from ackbox.services import Services
from ackbox.stores.sqlite.lock import LedgerLock
from ackbox.stores.sqlite.read.quarantine import SqliteQuarantineReader
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.services import SpaceReclaimer
from ackbox.stores.sqlite.store import SqliteStore
from ackbox.stores.sqlite.write.disk_space import DiskSpace
from ackbox.stores.sqlite.write.queue import SqliteQueue
from ackbox.stores.sqlite.write.submissions import SqliteSubmissions
from ackbox.telemetry import Fact
from ackbox.worker import Executor, LoopProbe
from ackbox.worker.heartbeat import Heartbeat
from ackbox.worker.settlement import Settler
from support.http.posting import new_key
from support.ledgers.events import accept, envelope
from support.time.polling import until

TOKEN = "twelve-boxers-hunt-victor"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
LOOPS = {
    "claims": (SqliteQueue, "claim"),
    "settlements": (Settler, "settle_next"),
    "overdue-runs": (Executor, "unresponsive"),
    "heartbeat": (Heartbeat, "_beat"),
    "loop-probe": (LoopProbe, "_probe"),
    "monitor": (Monitor, "tick"),
    "submissions": (SqliteSubmissions, "move"),
    "retention": (SqliteStore, "add_tombstones"),
    "parked-events": (SqliteReader, "parked_type"),
    "quarantine": (SqliteQuarantineReader, "usage"),
    "run-timeouts": (Executor, "_cancel"),
    "disk-space": (DiskSpace, "check"),
    "reclaim-space": (SpaceReclaimer, "_note_reclaimed"),
    "advertise-url": (LedgerLock, "describe"),
}
"""Each service of an inbox on SQLite, and a method that it calls. A test of their own covers
`ingest` and its time-outs, for which a sender waits."""
CALLED_BY_OPEN = ("disk-space", "advertise-url")


def settings(folder: Path) -> Settings:
    checked = Settings(
        db_path=folder / "inbox.db",
        api_token=SecretStr(TOKEN),
        claim_timeout=timedelta(seconds=1),
        ingest_timeout=timedelta(milliseconds=500),
        retry_base_delay=timedelta(milliseconds=1),
    )
    hours = 0.05 / 3600  # retention is due every 50 ms, more often than users may set
    return checked.model_copy(update={"cleanup_interval_hours": hours})


class Running:
    def __init__(self, inbox: Inbox, runtime: Runtime) -> None:
        self.runtime = runtime
        self.client = TestClient(inbox.asgi())

    async def send(self, event_type: str = "quick") -> EventId:
        return (await accept(self.runtime.ingest, envelope(new_key(), event_type=event_type))).id

    async def ended(self, event_id: EventId) -> EventRecord:
        async def has_ended() -> bool:
            event = await self.runtime.reader.event(event_id)
            return event is not None and event.status in (Status.COMPLETED, Status.FAILED)

        await until(has_ended)
        event = await self.runtime.reader.event(event_id)
        assert event is not None
        return event

    async def health(self, headers: dict[str, str] | None = None) -> dict[str, Any]:
        response = await asyncio.to_thread(self.client.get, "/health", headers=headers)
        body: dict[str, Any] = response.json()
        return body

    def failures(self, name: str) -> int:
        """Return how often the service has failed, from the metrics."""
        text = self.runtime.metrics()[0].decode()
        line = f'ackbox_service_failures_total{{service="{name}"}} '
        return int(float(text.partition(line)[2].partition("\n")[0]))


@asynccontextmanager
async def running(
    folder: Path, *observers: Callable[[Fact], None], critical_after: float = 60.0
) -> AsyncIterator[Running]:
    inbox = Inbox()

    @inbox.on("quick")
    async def quick(event: Event) -> None:
        pass

    @inbox.on("slow", timeout="50ms", max_attempts=1)
    async def slow(event: Event) -> None:
        await asyncio.Event().wait()

    anyone = build_sources({"anyone": SourceTable("anyone", {"verify": "none"}, "test")})
    app = App(
        settings(folder), sources=anyone, guest=True, observers=observers, unpark_seconds=0.05
    )
    app.services = Services(app.observe, clock=app.clock, critical_after=critical_after)
    async with inbox.running(app) as runtime:
        yield Running(inbox, runtime)


async def assert_all_goes_on(inbox: Running) -> None:
    """Check that ingest, claims, settlements and time-outs work."""
    quick, slow = await inbox.send(), await inbox.send("slow")
    assert (await inbox.ended(quick)).status is Status.COMPLETED
    assert (await inbox.ended(slow)).error_code == "timeout"


async def test_an_observer_that_always_raises_breaks_nothing(tmp_path: Path) -> None:  # S26, F56
    def broken(fact: Fact) -> None:
        raise RuntimeError("an exporter with a bug")

    async with running(tmp_path, broken) as inbox:
        await assert_all_goes_on(inbox)
        health = await inbox.health(OPERATOR)
        assert health["status"] == "ok"
        assert {service["state"] for service in health["services"]} == {"running"}
        metrics = inbox.runtime.metrics()[0].decode()
        counted = metrics.partition("\nackbox_observer_failures_total ")[2].partition("\n")[0]
        assert float(counted) > 5
        assert "ackbox_events_processed_total 1.0" in metrics  # the other observers saw every fact


@pytest.mark.parametrize("name", sorted(LOOPS))
async def test_a_loop_that_raises_is_restarted_and_shown_to_the_operator(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S26, F56
    monkeypatch.setattr(runtime_module, "Monitor", partial(Monitor, seconds=0.05))
    where, method = LOOPS[name]
    breaks = break_for_a_while(monkeypatch, where, method, at_once=name not in CALLED_BY_OPEN)
    async with running(tmp_path) as inbox:
        breaks.append(RuntimeError("a bug"))
        inbox.runtime.advertise("http://127.0.0.1:1")
        inbox.runtime.advertise("http://127.0.0.1:2")
        if name in ("run-timeouts", "settlements"):  # nothing else makes them work
            await inbox.send("slow")
        await until(lambda: inbox.failures(name) >= 2)
        shown = {service["name"]: service for service in (await inbox.health(OPERATOR))["services"]}
        assert shown[name]["state"] == "failing"
        assert shown[name]["error"].startswith("RuntimeError in broken")
        assert {service["state"] for service in shown.values() if service["name"] != name} == {
            "running"
        }
        assert "services" not in await inbox.health()

        breaks.clear()
        inbox.runtime.advertise("http://127.0.0.1:3")
        await assert_all_goes_on(inbox)
        await until(lambda: state_of(inbox, name) == "running")


def break_for_a_while(
    monkeypatch: pytest.MonkeyPatch, where: type, method: str, *, at_once: bool = True
) -> list[Exception]:
    """Let the method raise while the returned list has items."""
    original: Callable[..., Any] = getattr(where, method)
    breaks: list[Exception] = [RuntimeError("a bug")] if at_once else []

    def broken(*args: Any, **named: Any) -> Any:
        if breaks:
            raise breaks[0]
        return original(*args, **named)

    monkeypatch.setattr(where, method, broken)
    return breaks


def state_of(inbox: Running, name: str) -> str:
    services: Services = inbox.runtime.services
    return next(status.state for status in services.statuses if status.name == name)


@pytest.mark.parametrize(
    ("name", "method"), [("ingest", "_collect_batch"), ("ingest-timeouts", "_expire")]
)
async def test_ingest_that_raises_is_restarted(
    name: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S26, F56
    async with running(tmp_path) as inbox:
        await inbox.send()
        breaks = break_for_a_while(monkeypatch, type(inbox.runtime.ingest), method)
        sending: Awaitable[EventId] = asyncio.ensure_future(inbox.send())
        await until(lambda: inbox.failures(name) >= 1)
        breaks.clear()
        await asyncio.gather(sending, return_exceptions=True)
        await assert_all_goes_on(inbox)
        await until(lambda: state_of(inbox, name) == "running")


async def test_parked_events_are_looked_for_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S26
    breaks = break_for_a_while(monkeypatch, SqliteReader, "parked_type")
    async with running(tmp_path) as inbox:
        await until(lambda: inbox.failures("parked-events") >= 2)
        breaks.clear()
        await until(lambda: state_of(inbox, "parked-events") == "running")


async def test_a_loop_that_keeps_failing_is_critical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S26
    break_for_a_while(monkeypatch, Monitor, "tick")
    async with running(tmp_path, critical_after=0.2) as inbox:
        await until(lambda: inbox.failures("monitor") >= 5)
        assert (await inbox.health())["status"] == "critical"
