"""The log of a real server shows the application's own lines, events without a handler, and a stop
(N4, N7, N16)."""

from pathlib import Path
from typing import Any

from support.http.posting import posted
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

APP = """
import asyncio
import logging
from ackbox import Event, Inbox

inbox = Inbox()
log = logging.getLogger("billing")

@inbox.on("async")
async def in_a_task(event: Event) -> None:
    await asyncio.create_task(helper())

async def helper() -> None:
    log.info("in a task")

@inbox.on("plain")
def in_a_thread(event: Event) -> None:
    log.info("in a thread")

@inbox.on("slow")
async def slow(event: Event) -> None:
    log.info("slow")
    await asyncio.Event().wait()
"""


def post(server: AppServer, event_type: str) -> str:
    event_id: str = server.post(posted(event_type=event_type)).json()["id"]
    return event_id


def lines(server: AppServer, event: str) -> list[dict[str, Any]]:
    return [record for record in server.records() if record["event"] == event]


def test_the_log_of_a_server(tmp_path: Path) -> None:
    with serving(tmp_path, APP, {"LOG_LEVEL": "INFO", "SHUTDOWN_GRACE": "100ms"}) as server:
        ids = [post(server, event_type) for event_type in ("async", "plain", "slow")]
        unknown = [post(server, "unknown") for _ in range(3)]
        eventually(lambda: lines(server, "slow"))
        eventually(lambda: server.metric("ackbox_events_unhandled_total") == 3)
        assert server.stop() == 0

        for line, event_id in zip(("in a task", "in a thread", "slow"), ids, strict=True):
            (record,) = lines(server, line)  # N16
            assert (record["logger"], record["event_id"]) == ("billing", event_id)
            assert record["level"] == "info"
        (unhandled,) = lines(server, "no handler for this event type")  # N4
        assert unhandled["event_id"] in unknown
        assert unhandled["event_type"] == "unknown"
        (stopping,) = lines(server, "stopping")  # N7
        assert stopping["running"] == {"app.slow": 1}
        assert stopping["grace_seconds"] == 0.1
        (stopped,) = lines(server, "stopped")
        assert stopped["released"] == 1
        assert lines(server, "no handlers") == []


def test_an_inbox_without_handlers_logs_a_warning(tmp_path: Path) -> None:  # N4
    app = "from ackbox import Inbox\ninbox = Inbox()\n"
    with serving(tmp_path, app) as server:
        (line,) = lines(server, "no handlers")
        assert (line["level"], line["unhandled"]) == ("warning", "complete")
