"""A failing disk: senders get 503 with `Retry-After`, other routes keep working, and the server
recovers by itself (F8, F9, F10, L9)."""

from pathlib import Path

import pytest

from support.faults.disk import on_a_faulty_disk
from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Response, Wire, exchange, exchange_together, request
from support.servers.server import Server, read_ledger, running
from support.time.polling import eventually

IMPATIENT = {"INGEST_TIMEOUT": "300ms"}


def assert_unavailable(response: Response) -> str:
    assert int(response.headers["retry-after"]) >= 1
    return assert_problem(response, 503)


def alarms(server: Server) -> list[str]:
    """Return the reasons of all errors in the log."""
    errors = [record for record in server.records() if record["level"] in ("error", "critical")]
    return [record.get("reason") or record["error"] for record in errors]


def test_a_commit_that_fails_is_503_for_all_of_its_batch(tmp_path: Path) -> None:  # F8
    lines = [posted() for _ in range(20)]
    batch = request("POST", "/webhooks/batch", b"\n".join(lines))
    with on_a_faulty_disk(tmp_path) as (server, disk):
        assert server.post(posted()).status == 202
        disk.break_("sync once")

        response = exchange(server.port, batch)

        assert [line["status"] for line in response.lines()] == [503] * 20
        assert_unavailable(server.get("/ready"))
        assert server.get("/health").status == 200
        eventually(server.is_ready, within=5)
        again = exchange(server.port, batch)
        assert {line["http_status"] for line in again.lines()} <= {200, 202}
        assert read_ledger(server.ledger, "SELECT count(*) FROM events") == [(21,)]
        assert server.metric("ackbox_store_failures_total") == 1
        assert server.metric("ackbox_store_unavailable") == 0


def test_a_commit_that_fails_is_never_202(tmp_path: Path) -> None:  # F8
    with on_a_faulty_disk(tmp_path) as (server, disk):
        key = new_key()
        disk.break_("sync once")

        assert "unknown" in assert_unavailable(server.post(posted(key)))

        eventually(server.is_ready, within=5)
        assert server.post(posted(key)).status in (200, 202)
        assert len(read_ledger(server.ledger, "SELECT id FROM events")) == 1
        assert any("commit failed" in reason for reason in alarms(server))


def test_a_disk_that_fails_again_within_a_minute_ends_the_process(tmp_path: Path) -> None:  # F8
    with on_a_faulty_disk(tmp_path) as (server, disk):
        kept = [server.post(posted()).json()["id"] for _ in range(10)]
        disk.break_("sync")

        requests = [request("POST", "/webhooks", posted()) for _ in range(20)]
        for response in exchange_together(server.port, requests):
            assert_unavailable(response)

        assert server.process.wait(15) not in (0, None)
        assert "critical" in [record["level"] for record in server.records()]

    with running(server.folder) as server:
        assert all(server.get(f"/webhooks/{event_id}").status == 200 for event_id in kept)
        assert server.post(posted()).status == 202


def test_on_a_full_disk_only_events_are_refused(tmp_path: Path) -> None:  # F9
    with on_a_faulty_disk(tmp_path, IMPATIENT) as (server, disk):
        kept = server.post(posted()).json()["id"]
        with disk.broken("full"):
            assert_unavailable(server.post(posted()))
            assert_unavailable(server.get("/ready"))
            assert any("full" in reason for reason in alarms(server))
            for _ in range(20):
                assert_unavailable(server.post(posted()))
            for path in (f"/webhooks/{kept}", "/metrics", "/health", "/openapi.json"):
                assert server.get(path).status == 200

        eventually(lambda: server.post(posted()).status == 202, within=5)
        assert server.is_ready()
        assert server.get(f"/webhooks/{kept}").status == 200


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_lasting_failure_is_logged_once_a_minute(tmp_path: Path, fault: str) -> None:  # F9
    with on_a_faulty_disk(tmp_path, IMPATIENT) as (server, disk):
        start = len(server.records())
        with disk.broken(fault):
            for _ in range(4):
                requests = [request("POST", "/webhooks", posted()) for _ in range(20)]
                assert {a.status for a in exchange_together(server.port, requests)} == {503}
        eventually(server.is_ready, within=5)

        lines = [record["event"] for record in server.records()[start:]]
        assert len(lines) <= 3, lines  # the store failed, events are refused, the store recovered


def test_a_read_only_disk_is_503_until_it_can_be_written_again(tmp_path: Path) -> None:  # F10
    with on_a_faulty_disk(tmp_path, IMPATIENT) as (server, disk):
        kept = server.post(posted()).json()["id"]
        with disk.broken("read-only"):
            assert_unavailable(server.post(posted()))
            assert_unavailable(server.get("/ready"))
            eventually(lambda: "readonly" in assert_unavailable(server.post(posted())))
            assert server.get(f"/webhooks/{kept}").status == 200
            assert server.get("/metrics").status == 200

        eventually(server.is_ready, within=5)
        assert server.post(posted()).status == 202


def test_past_the_budget_health_is_critical_and_the_process_stays(tmp_path: Path) -> None:  # L9
    budget = {"ackbox.component_config:Limits": {"budget_seconds": 0.3}}
    with on_a_faulty_disk(tmp_path, IMPATIENT, budget) as (server, disk):
        with disk.broken("read-only"):
            assert_unavailable(server.post(posted()))
            eventually(lambda: server.get("/health").json()["status"] == "critical")
            assert server.get("/health").status == 200
            assert_unavailable(server.get("/ready"))

        eventually(lambda: server.get("/health").json()["status"] == "ok")
        assert server.is_ready()
        assert server.post(posted()).status == 202


def test_senders_do_not_notice_a_failure_that_ends_in_time(tmp_path: Path) -> None:  # L9
    with on_a_faulty_disk(tmp_path) as (server, disk):

        def fails_once() -> bool:
            """Return whether the event met the fault; another write may have met it first."""
            disk.break_("full once")
            assert server.post(posted()).status == 202
            return server.metric("ackbox_record_failures_total") >= 1

        eventually(fails_once)


def test_a_client_that_disconnects_during_the_commit_affects_no_other(
    tmp_path: Path,
) -> None:  # F27
    with on_a_faulty_disk(tmp_path) as (server, disk):
        with disk.broken("stall"), Wire(server.port) as waiting:
            waiting.send(request("POST", "/webhooks", posted()))
            eventually(lambda: server.metric("ackbox_buffer_events") == 1)
            with Wire(server.port) as disconnecting:
                disconnecting.send(request("POST", "/webhooks", posted("left")))
                eventually(lambda: server.metric("ackbox_buffer_events") == 2)
            disk.heal()
            assert waiting.read().status == 202

        assert server.post(posted("left")).status == 200
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0)


@pytest.mark.parametrize("fault", ["full", "read-only", "sync once"])
def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, fault: str) -> None:  # F9
    """The log file is often on the disk that is full."""
    with on_a_faulty_disk(tmp_path, IMPATIENT, None, Path("/dev/full")) as (server, disk):
        assert server.post(posted()).status == 202
        with disk.broken(fault):
            assert_unavailable(server.post(posted()))
            assert server.get("/health").status == 200

        eventually(server.is_ready, within=5)
        assert server.post(posted()).status == 202
        assert server.stop() in (0, 120)  # 120: the interpreter itself had something to flush
