"""ARCHITECTURE.md lists the calls that an event takes from its request to its response."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import uniform
from types import FrameType
from typing import Any, cast

import ackbox
from ackbox.app import NO_SOURCES, utc_now
from ackbox.clock import SteadyClock, uptime
from ackbox.config import Settings
from ackbox.http.fast_path import FastPath
from ackbox.http.requests import Asgi
from ackbox.ingest import Ingest, Limits
from ackbox.runtime import Runtime
from ackbox.telemetry import ignore_facts
from support.ledgers.backends import open_sqlite
from support.time.polling import until
from support.time.supervisor import supervisor

PACKAGE = Path(ackbox.__file__).parent
LIMITS = Limits(buffer_events=100, buffer_bytes=1 << 20, queue_events=1000, timeout=60.0)
PAGE = PACKAGE.parents[1] / "ARCHITECTURE.md"
BESIDE_THE_PATH = (
    "app/__init__.py",  # the time of day
    "clock.py",
    "telemetry.py",  # facts, and their observers
    "exporters/",
    "services.py",  # the supervisor of the loop that records
    "model/checks.py",  # checks and conversions of single values
    "model/events.py",
    "model/moments.py",
    "stores/sqlite/columns.py",
    "stores/sqlite/ledger_files.py",  # the protection of the files, once for each commit
    "stores/sqlite/write/disk_space.py",  # free disk space, once for each batch
    "stores/sqlite/write/checkpoints.py",
    "stores/sqlite/write/queue.py",  # waking the workers
)
NOT_AWAITED = {
    "Writer._checkpoint",  # after the writer has resolved the futures
    "Writer._take",
    "Ingest._expire_and_wait",  # the loop of time-outs, which may run at any time
    "Ingest.expire_waiters",
}


class Calls:
    """The functions of ackbox that were called, on any thread, in their order. A coroutine that
    goes on counts once. Properties and comprehensions do not count."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.on_path: list[str] = []
        self._known: set[FrameType] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(PACKAGE)):
            return
        if frame in self._known or code.co_name.startswith("<") or _is_property(frame):
            return
        self._known.add(frame)
        self.all.append(code.co_qualname)
        module = Path(code.co_filename).relative_to(PACKAGE).as_posix()
        if not module.startswith(BESIDE_THE_PATH) and code.co_qualname not in NOT_AWAITED:
            self.on_path.append(code.co_qualname)

    def is_writer_idle(self) -> bool:
        """Return whether the writer thread waits for its next job."""
        writing = [name for name in self.all if name in ("Writer._run_jobs", "Writer._take")]
        return writing[-1:] == ["Writer._take"]

    def copy(self) -> "Calls":
        copy = Calls()
        copy.all, copy.on_path = list(self.all), list(self.on_path)
        return copy

    def clear(self) -> None:
        """Begin to count; frames that exist already stay known."""
        self.all.clear()
        self.on_path.clear()


def _is_property(frame: FrameType) -> bool:
    owner = type(frame.f_locals.get("self"))
    return isinstance(getattr(owner, frame.f_code.co_name, None), property)


@contextmanager
def profiling(calls: Calls) -> Iterator[None]:
    before = sys.getprofile()
    threading.setprofile(calls.note)  # the writer thread starts below
    sys.setprofile(calls.note)
    try:
        yield
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


class RuntimeStub:
    """The part of a runtime that the fast path uses."""

    settings = Settings()
    sources = NO_SOURCES
    observe = staticmethod(ignore_facts)
    clock = staticmethod(SteadyClock(utc_now, uptime))

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest


async def post(app: Asgi, key: str) -> int:
    """Send `POST /webhooks`, and return the status of the response."""
    body = json.dumps({"idempotency_key": key, "payload": {}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": "POST", "path": "/webhooks", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def trace_a_request(folder: Path) -> Calls:
    """Trace a request without the other loops of a runtime, which would add calls of their own."""
    calls = Calls()
    with profiling(calls):
        store = await open_sqlite(folder / "events.db")
        ingest = Ingest(store, LIMITS, backlog=0, observe=ignore_facts, uniform=uniform)
        ingest.start(supervisor())
        app = FastPath(cast("Runtime", RuntimeStub(ingest)), cast("Asgi", None))
        assert await post(app, "first") == 202  # what happens once is over
        await until(calls.is_writer_idle)
        calls.clear()
        assert await post(app, "second") == 202
        traced = calls.copy()
    await ingest.close()
    await store.close()
    return traced


async def test_an_event_takes_at_most_30_calls_and_the_page_lists_them(tmp_path: Path) -> None:
    calls = await trace_a_request(tmp_path)
    _, _, section = PAGE.read_text().partition("## From request to 202")
    listed = re.findall(r"^\d+\. `([\w.<>]+)`", section.partition("\n## ")[0], re.MULTILINE)
    assert calls.on_path == listed
    assert len(listed) <= 30
    assert len(calls.all) <= 75, calls.all
