"""`POST /webhooks/batch`: NDJSON in, NDJSON out, line for line."""

import json
import socket
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from threading import Thread

import pytest

from support.faults.disk import on_a_faulty_disk
from support.http.posting import new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Response, Wire, chunked, exchange, request
from support.servers.server import FAST_MONITOR, Server, read_ledger, running
from support.time.polling import eventually

MIB = 1024 * 1024


def send(server: Server, body: bytes) -> Response:
    return exchange(server.port, request("POST", "/webhooks/batch", body))


def statuses(response: Response) -> list[int]:
    return [line.get("http_status", line["status"]) for line in response.lines()]


def test_receipts_have_the_order_of_the_lines(server: Server) -> None:
    keys = [new_key() for _ in range(20)]

    response = send(server, b"\n".join(posted(key, number) for number, key in enumerate(keys)))

    assert response.status == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["x-request-id"]
    assert [line["idempotency_key"] for line in response.lines()] == keys
    assert set(statuses(response)) == {202}
    for number, line in enumerate(response.lines()):
        assert list(line) == ["id", "idempotency_key", "status", "created_at", "http_status"]
        assert server.payload(line["id"]) == str(number).encode()
        assert server.get(f"/webhooks/{line['id']}").status == 200


def test_each_line_has_a_status_of_its_own(server: Server) -> None:  # F28
    known = new_key()
    server.post(posted(known, 1))
    large = posted(payload="x" * MIB)
    lines = {
        posted(): 202,
        b"{": 400,
        posted(known, 1): 200,
        large: 413,
        b'{"payload":1}': 400,
        posted(known, 2): 200,
        b'{"idempotency_key":"\\ud800","payload":1}': 400,
        posted(payload="x" * (MIB - 100)): 202,
        b"\xff": 400,
        posted(payload="last"): 202,
    }

    response = send(server, b"\n".join(lines))

    assert statuses(response) == list(lines.values())
    assert response.lines()[5]["conflict"] is True
    assert "conflict" not in response.lines()[2]
    for line in response.lines():
        assert "http_status" in line or line["detail"] not in ("", line["title"])


@pytest.mark.parametrize(
    ("separator", "end"), [(b"\n", b""), (b"\n", b"\n"), (b"\r\n", b"\r\n"), (b"\r\n", b"")]
)
def test_lines_may_end_either_way(server: Server, separator: bytes, end: bytes) -> None:
    response = send(server, separator.join(posted() for _ in range(5)) + end)

    assert statuses(response) == [202] * 5


def test_a_blank_line_is_an_invalid_line(server: Server) -> None:
    response = send(server, posted() + b"\n\n" + posted() + b"\n\r\n  \n")

    assert statuses(response) == [202, 400, 202, 400, 400]


def test_an_empty_batch_has_an_empty_response(server: Server) -> None:
    response = send(server, b"")

    assert (response.status, response.body) == (200, b"")


def test_a_line_of_exactly_the_limit_is_accepted(server: Server) -> None:
    frame = len(posted(payload=""))

    lines = [posted(payload="x" * (MIB - frame)), posted(payload="x" * (MIB - frame + 1))]

    assert statuses(send(server, b"\r\n".join(lines) + b"\r\n")) == [202, 413]


def test_a_key_repeated_inside_a_batch_is_one_event(server: Server) -> None:  # F30
    key = new_key()

    response = send(server, b"\n".join(posted(key, number // 2) for number in range(4)))

    assert statuses(response) == [202, 200, 200, 200]
    assert len({line["id"] for line in response.lines()}) == 1
    assert [line.get("conflict", False) for line in response.lines()] == [False, False, True, True]
    assert read_ledger(
        server.ledger,
        "SELECT count(*), ingest_count, conflict_count FROM events WHERE idempotency_key = ?",
        key,
    ) == [(1, 4, 2)]


def test_10_000_lines_are_10_000_events(server: Server) -> None:
    lane = new_key()
    body = b"\n".join(posted(lane=lane) for _ in range(10_000))

    response = send(server, body)

    assert Counter(statuses(response)) == {202: 10_000}
    sql = "SELECT count(DISTINCT id) FROM events WHERE lane = ?"
    assert read_ledger(server.ledger, sql, lane) == [(10_000,)]


def test_chunks_may_split_lines_anywhere(server: Server) -> None:
    body = b"\r\n".join(posted(payload="ü") for _ in range(5))
    pieces = [body[start : start + 7] for start in range(0, len(body), 7)]

    response = exchange(server.port, chunked("POST", "/webhooks/batch", pieces))

    assert statuses(response) == [202] * 5


def test_a_batch_over_its_limit_is_413_as_a_whole(server: Server) -> None:
    lane = new_key()
    line = posted(lane=lane, payload="x" * MIB) + b"\n"
    small = posted(lane=lane) + b"\n"

    with_length = send(server, small + line * 16)
    streamed = exchange(server.port, chunked("POST", "/webhooks/batch", [small, *[line] * 16]))

    for response in (with_length, streamed):
        assert str(16 * MIB) in assert_problem(response, 413)
    assert read_ledger(server.ledger, "SELECT * FROM events WHERE lane = ?", lane) == []


def test_a_client_that_sends_all_before_reading_does_not_deadlock(server: Server) -> None:
    """Neither side waits for the other, though response and body are larger than any buffer."""
    line = posted(payload="x" * 2000) + b"\n"
    body = line * (16 * MIB // len(line))

    with Wire(server.port, timeout=60) as wire:
        wire.send(request("POST", "/webhooks/batch", body))
        response = wire.read()

    assert Counter(statuses(response)) == {202: 1, 200: body.count(b"\n") - 1}


@pytest.mark.serial
def test_millions_of_invalid_lines_cost_little_memory_and_delay_no_sender(server: Server) -> None:
    body = b"1\n" * (2 * MIB)
    server.reset_peak()
    before = server.peak_bytes()

    with Wire(server.port, timeout=60) as wire:
        sending = Thread(target=drain, args=(wire, request("POST", "/webhooks/batch", body)))
        sending.start()
        neighbour_waits = [time_of(server) for _ in range(20)]
        wire.socket.shutdown(2)
        sending.join()

    assert sorted(neighbour_waits)[-2] < 0.5
    assert server.peak_bytes() - before < 4 * len(body)


def test_a_batch_that_ends_halfway_stores_nothing(server: Server) -> None:
    lane = new_key()
    data = request("POST", "/webhooks/batch", b"\n".join(posted(lane=lane) for _ in range(1000)))

    with Wire(server.port) as wire:
        wire.send(data[: len(data) // 2])

    assert server.post(posted()).status == 202
    assert read_ledger(server.ledger, "SELECT * FROM events WHERE lane = ?", lane) == []


def test_a_complete_group_is_stored_though_its_client_disconnected(server: Server) -> None:
    lane = new_key()  # F27

    with Wire(server.port) as wire:
        wire.send(
            request("POST", "/webhooks/batch", b"\n".join(posted(lane=lane) for _ in range(500)))
        )

    eventually(lambda: stored(server, lane) == 500)


def test_the_work_stops_when_the_client_disconnects(tmp_path: Path) -> None:  # S2
    lane = new_key()
    body = b"\n".join(posted(lane=lane) for _ in range(10_000))
    with on_a_faulty_disk(tmp_path, None, FAST_MONITOR) as (server, disk):
        with disk.broken("stall"), Wire(server.port) as wire:
            wire.send(request("POST", "/webhooks/batch", body))
            eventually(lambda: server.metric("ackbox_buffer_events") == 500)
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0)

        assert 0 < stored(server, lane) < 2000


def test_bytes_are_released_as_groups_become_durable(tmp_path: Path) -> None:  # S2
    """The client does not read its response, so the batch cannot finish during the test."""
    body = (posted("k" * 255) + b"\n") * 15_000
    settings = {"MAX_BATCH_LINES": "15000"}
    duplicates = 'ackbox_events_received_total{receipt="duplicate",source="webhooks"}'
    with running(tmp_path, settings, {"set": FAST_MONITOR}) as server, Wire(server.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.send(request("POST", "/webhooks/batch", body))

        eventually(lambda: server.metric(duplicates) > 3000)
        eventually(lambda: 0 < server.metric("ackbox_buffer_bytes") < 0.9 * len(body), within=5)
        assert server.metric(duplicates) < 14_999


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_lines_past_the_limit_are_not_read(tmp_path: Path, end: bytes) -> None:  # S2
    lane = new_key()
    line = b'{"idempotency_key":"%s","payload":1,"lane":"' + lane.encode() + b'"}'
    with running(tmp_path, {"MAX_BATCH_LINES": "4"}) as server:
        lines = [line % b"a", b"", line % b"b", b"", line % b"c"]

        allowed, over = (
            send(server, b"\n".join(lines[:4]) + b"\n"),
            send(server, b"\n".join(lines) + end),
        )

        assert statuses(allowed) == [202, 400, 202, 400]
        assert statuses(over) == [200, 400, 200, 400, 413]
        assert "4 lines (MAX_BATCH_LINES)" in over.lines()[-1]["detail"]
        assert stored(server, lane) == 2


def test_the_default_limit_is_10_000_lines(server: Server) -> None:  # S2
    response = send(server, (posted("again and again") + b"\n") * 10_001)

    assert Counter(statuses(response)) in ({202: 1, 200: 9999, 413: 1}, {200: 10_000, 413: 1})
    assert statuses(response)[-1] == 413


def test_after_1000_invalid_lines_the_rest_is_not_read(server: Server) -> None:  # S2
    lane = new_key()
    first, second, third = (posted(lane=lane) for _ in range(3))

    response = send(server, b"\n".join([first, *[b"x"] * 999, second, *[b"x"] * 5000, third]))

    counts = Counter(statuses(response))
    assert counts[202] == stored(server, lane) == 2
    assert 1000 <= counts[400] < 2000
    assert "1000 lines or more are not valid" in response.lines()[-1]["detail"]


def test_999_invalid_lines_do_not_stop_a_batch(server: Server) -> None:  # S2
    response = send(server, b"x\n" * 999 + posted())

    assert statuses(response) == [400] * 999 + [202]


def test_lines_past_the_queues_size_are_429_and_the_others_are_stored(tmp_path: Path) -> None:
    with running(tmp_path, {"QUEUE_MAXSIZE": "25"}) as server:  # W7
        first = send(server, b"\n".join(chain((posted() for _ in range(20)), [b"{"])))
        second = send(server, b"\n".join(posted() for _ in range(10)))

        assert statuses(first) == [202] * 20 + [400]
        assert statuses(second) == [202] * 5 + [429] * 5
        assert read_ledger(server.ledger, "SELECT count(*) FROM events") == [(25,)]
        assert_problem(server.post(posted()), 429)


def test_a_batch_that_the_buffer_could_never_hold_is_413(tmp_path: Path) -> None:
    settings = {"MAX_BODY_BYTES": "1KiB", "INGEST_BUFFER_BYTES": "64KiB"}
    with running(tmp_path, settings) as server:
        body = b"\n".join(posted() for _ in range(1000))

        assert len(body) > 65536
        assert "65536" in assert_problem(send(server, body), 413)


def stored(server: Server, lane: str) -> int:
    sql = "SELECT count(*) FROM events WHERE lane = ?"
    ((count,),) = read_ledger(server.ledger, sql, lane)
    return int(count)


def drain(wire: Wire, data: bytes) -> None:
    wire.send_ignoring_close(data)
    wire.is_closed(within=60)


def time_of(server: Server) -> float:
    start = time.monotonic()
    assert server.post(posted()).status == 202
    return time.monotonic() - start


def test_the_response_is_one_json_document_per_line(server: Server) -> None:
    response = send(server, posted() + b"\nx\n" + posted())

    assert response.body.endswith(b"\n")
    assert len([json.loads(line) for line in response.body.splitlines()]) == 3
