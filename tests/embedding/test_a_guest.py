"""An inbox inside another app leaves the host's process as it was."""

import gc
import logging
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Event, Inbox
from support.time.polling import eventually

TOKEN = "twelve-boxers-hunt-victor"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
EVENT = {"idempotency_key": "order-1", "event_type": "order.paid", "payload": {"total": 42}}


def posting(inbox: Inbox) -> TestClient:
    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/inbox", inbox.asgi())
    return TestClient(app, "http://localhost/inbox")


def test_the_hosts_logging_stays_as_it_was(settings: dict[str, Any]) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configured = structlog.is_configured(), structlog.get_config()["processors"]
    with posting(Inbox(settings)) as client:
        client.post("/webhooks", json=EVENT)
    assert (root.handlers, root.level) == (handlers, level)
    assert (structlog.is_configured(), structlog.get_config()["processors"]) == configured


def test_interpreter_and_signals_stay_as_they_were(settings: dict[str, Any]) -> None:
    before = look_at_the_process()
    with posting(Inbox(settings)) as client:
        client.post("/webhooks", json=EVENT)
        assert look_at_the_process() == before


def test_a_process_of_our_own_is_tuned() -> None:
    script = (
        "import asyncio, gc, sys; from ackbox.http.server import run; run(asyncio.sleep(0)); "
        "print(round(sys.getswitchinterval() * 1e6), gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == [b"100", b"True"]  # microseconds


def look_at_the_process() -> tuple[object, ...]:
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    return sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count(), *handlers


def test_log_lines_go_to_the_logger_ackbox_of_the_host(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(settings)

    @inbox.on("order.*")
    async def ship(event: Event) -> None:
        event.logger.warning("shipping", carrier="slow")

    caplog.set_level(logging.INFO, logger="ackbox")
    with posting(inbox) as client:
        taken = client.post("/webhooks", json=EVENT).json()
        eventually(lambda: [line for line in caplog.messages if "event completed" in line])
    lines = {line.partition(" ")[0]: line for line in caplog.messages}
    assert f"event_id={taken['id']}" in lines["shipping"]
    assert "carrier=slow" in lines["shipping"]
    record = next(record for record in caplog.records if record.message.startswith("shipping"))
    assert (record.name, record.levelname) == ("ackbox", "WARNING")
    assert record.__dict__["ackbox"]["event_id"] == taken["id"]


def test_the_host_sees_the_traceback_of_a_failed_run(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:  # N2
    inbox = Inbox(settings)

    @inbox.on("order.*", max_attempts=1)
    async def ship(event: Event) -> None:
        raise ValueError("no 100% of it")

    with posting(inbox) as client:
        client.post("/webhooks", json=EVENT)
        eventually(lambda: [line for line in caplog.messages if "event failed" in line])
    (message,) = [line for line in caplog.messages if line.startswith("event failed")]
    line, *below = message.splitlines()
    assert "error=ValueError: no 100% of it" in line
    assert below[0] == "Traceback (most recent call last):"
    assert below[-1] == "ValueError: no 100% of it"


def test_the_host_decides_which_lines_are_written(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="ackbox")
    inbox = Inbox(settings)
    inbox.on("order.*")(lambda event: None)
    with posting(inbox) as client:
        client.post("/webhooks", json=EVENT)
    assert [record for record in caplog.records if record.name == "ackbox"] == []


def test_an_exception_of_a_handler_is_logged_with_its_trace(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(settings)

    @inbox.on("order.*")
    def ship(event: Event) -> None:
        try:
            raise ValueError("no such carrier")
        except ValueError:
            event.logger.error("cannot ship", exc_info=True)

    with posting(inbox) as client:
        client.post("/webhooks", json=EVENT)
        eventually(lambda: "no such carrier" in caplog.text)


def test_a_refused_start_leaves_nothing_behind(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    inbox.schema("CREATE TABEL mine (n INTEGER)")
    for _ in range(2):
        with pytest.raises(Exception, match="CREATE TABEL"), posting(inbox):
            pass


def test_a_fatal_error_is_reported_to_the_host(settings: dict[str, Any]) -> None:
    """`ackbox serve` would exit here. In another app only the host may end the process."""
    inbox = Inbox({**settings, "worker_count": 1})
    released = threading.Event()

    @inbox.on("order.*", timeout="20ms")
    def hang(event: Event) -> None:
        released.wait(20)

    with posting(inbox) as client:
        client.post("/webhooks", json=EVENT)
        eventually(lambda: client.get("/ready").status_code == 503)
        assert "hang" in client.get("/ready", headers=OPERATOR).json()["detail"]
        assert client.get("/health").json()["status"] == "critical"
        released.set()
