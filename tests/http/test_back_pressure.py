"""Back-pressure: when too many events wait, senders get 429 and `Retry-After` (W7)."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.faults.disk import on_a_faulty_disk
from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Wire, exchange_together, request
from support.servers.server import FAST_MONITOR, Server, read_ledger, running
from support.time.polling import eventually


def refused(reason: str) -> str:
    return f'ackbox_events_refused_total{{reason="{reason}"}}'


def test_the_event_past_the_queues_size_is_429(tmp_path: Path) -> None:  # W7
    with running(tmp_path, {"QUEUE_MAXSIZE": "10"}) as server:
        known = new_key()
        assert [server.post(posted(known)).status for _ in range(2)] == [202, 200]
        assert {server.post(posted()).status for _ in range(9)} == {202}

        assert "10 events wait" in assert_problem(
            server.post(posted()), 429, **{"retry-after": "1"}
        )
        assert_problem(server.post(posted(known)), 429)  # checked before the insert

        assert server.get(f"/webhooks?idempotency_key={known}").status == 200
        assert read_ledger(server.ledger, "SELECT count(*) FROM events") == [(10,)]
        assert server.metric(refused("queue")) == 2
        assert server.metric("ackbox_queue_depth") <= 10

        server.kill()
        server.restart()  # pending events of the ledger are never refused
        assert_problem(server.post(posted()), 429)


def test_concurrent_senders_fill_the_queue_exactly(tmp_path: Path) -> None:  # W7
    with running(tmp_path, {"QUEUE_MAXSIZE": "10"}) as server:
        requests = [request("POST", "/webhooks", posted()) for _ in range(60)]

        responses = exchange_together(server.port, requests)

        assert Counter(response.status for response in responses) == {202: 10, 429: 50}
        assert all(a.headers["retry-after"] for a in responses if a.status == 429)
        assert read_ledger(server.ledger, "SELECT count(*) FROM events") == [(10,)]


def test_a_full_buffer_is_429_at_once_and_its_events_are_stored(tmp_path: Path) -> None:  # W7, L2
    with on_a_faulty_disk(tmp_path, {"INGEST_BUFFER": "5"}) as (server, disk), ExitStack() as open_:
        waiting = [open_.enter_context(Wire(server.port)) for _ in range(5)]
        with disk.broken("stall"):
            for wire in waiting:
                wire.send(request("POST", "/webhooks", posted()))
            eventually(lambda: server.metric("ackbox_buffer_events") == 5)
            late = [server.post(posted()) for _ in range(10)]
            assert server.get("/health").status == 200

        for response in late:
            assert "buffer" in assert_problem(response, 429, **{"retry-after": "1"})
        assert [wire.read().status for wire in waiting] == [202] * 5
        assert server.post(posted()).status == 202
        assert server.metric(refused("buffer_events")) == 10


def test_a_buffer_full_of_bytes_is_429(tmp_path: Path) -> None:  # L2
    settings = {"INGEST_BUFFER_BYTES": "100KiB", "MAX_BODY_BYTES": "100KiB"}
    with on_a_faulty_disk(tmp_path, settings) as (server, disk), Wire(server.port) as waiting:
        with disk.broken("stall"):
            waiting.send(request("POST", "/webhooks", posted(payload="x" * 70_000)))
            eventually(lambda: server.metric("ackbox_buffer_events") == 1)
            assert server.metric("ackbox_buffer_bytes") > 70_000
            assert_problem(server.post(posted(payload="x" * 40_000)), 429, **{"retry-after": "1"})
            with Wire(server.port) as small:
                small.send(request("POST", "/webhooks", posted()))
                eventually(lambda: server.metric("ackbox_buffer_events") == 2)
                disk.heal()
                assert small.read().status == 202

        assert waiting.read().status == 202
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0)
        assert server.metric(refused("buffer_bytes")) == 1


def test_no_sender_waits_longer_than_the_time_out(tmp_path: Path) -> None:  # L9
    with on_a_faulty_disk(tmp_path, {"INGEST_TIMEOUT": "300ms"}) as (server, disk):
        key = new_key()
        with disk.broken("stall"):
            assert_problem(server.post(posted(key)), 503, **{"retry-after": "5"})
            assert_problem(server.post(posted()), 503, **{"retry-after": "5"})

        eventually(server.is_ready)
        assert server.post(posted(key)).status in (200, 202)


@pytest.mark.parametrize("length", ["Content-Length: 1048576", "Transfer-Encoding: chunked"])
def test_declared_bytes_are_not_held_before_they_arrive(server: Server, length: str) -> None:  # F39
    """If they were, 64 connections that send no body would keep every sender out."""
    head = f"POST /webhooks HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()
    with ExitStack() as open_:
        for _ in range(200):
            open_.enter_context(Wire(server.port)).send(head)

        assert {server.post(posted()).status for _ in range(20)} == {202}


def test_bytes_of_a_request_that_ends_early_are_released(tmp_path: Path) -> None:
    settings = {"INGEST_BUFFER_BYTES": "200KiB", "MAX_BODY_BYTES": "200KiB"}
    with running(tmp_path, settings, {"set": FAST_MONITOR}) as server:
        data = request("POST", "/webhooks", posted(payload="x" * 150_000))
        for end in (len(data) - 1, 100_000):
            for _ in range(5):
                with Wire(server.port) as wire:
                    wire.send(data[:end])
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0)

        assert server.post(b"x" * 204_801).status == 413
        assert server.post(b"{" * 150_000).status == 400
        assert server.post(posted(payload="x" * 150_000)).status == 202
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0)
