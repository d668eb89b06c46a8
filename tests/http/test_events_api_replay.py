"""Replay over HTTP: one event, or the events that match a filter (L8, L11, F31, F49)."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.http.posting import UNKNOWN_ID, posted
from support.http.problems import assert_problem
from support.http.wire import Response, Wire, exchange, request
from support.ledgers.events import envelope, record_in
from support.ledgers.seeding import LONG_AGO, States, seed
from support.servers.server import Server, running
from support.time.polling import eventually
from support.workers.event_runs import DEAD, work

SOURCES = [f"s{n}" for n in range(24)]


@pytest.fixture(scope="module")
def fresh() -> list[States]:
    """One set of events for each test, each with a source of its own."""
    return [States(source, other=source) for source in SOURCES]


@pytest.fixture(scope="module")
def api(fresh: list[States], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    async def fill(store: Any) -> None:
        for states in fresh:
            await states.seed(store)

    folder = tmp_path_factory.mktemp("api")
    seed(folder / "events.db", fill)
    with running(folder) as server:
        yield server


@pytest.fixture
def states(api: Server, fresh: list[States]) -> States:
    return fresh.pop()


def post(api: Server, path: str, body: object = None, **headers: str) -> Response:
    raw = b"" if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json", **api.operator, **headers}
    return exchange(api.port, request("POST", path, raw, sent))


def replay(api: Server, **body: object) -> list[Any]:
    response = post(api, "/api/events/replay", body)
    assert response.status == 200, response.body
    return response.lines()


def status(api: Server, event_id: str) -> str:
    return str(api.row(event_id, "status")[0])


def audit(api: Server) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/api/audit").json()["items"]
    return items


# L11, F31
@pytest.mark.parametrize(
    ("name", "did"),
    [
        ("failed", "replayed"),
        ("retrying", "expedited"),
        ("parked", "unparked"),
        ("pending", "waiting"),
    ],
)
def test_one_event_is_replayed(api: Server, states: States, name: str, did: str) -> None:
    event_id = getattr(states, name).id
    before = api.metric("ackbox_events_replayed_total")
    response = post(api, f"/api/events/{event_id}/replay")
    assert (response.status, response.json()) == (200, {"id": event_id, "did": did})
    assert status(api, event_id) == "pending"
    assert api.metric("ackbox_events_replayed_total") - before == (did != "waiting")


# N5
def test_a_completed_event_is_409_unless_completed_is_set(api: Server, states: States) -> None:
    path = f"/api/events/{states.completed.id}/replay"
    assert '{"completed": true}' in assert_problem(post(api, path), 409)
    assert_problem(post(api, path, {"completed": False}), 409)
    assert status(api, states.completed.id) == "completed"
    assert post(api, path, {"completed": True}).json()["did"] == "replayed"
    assert status(api, states.completed.id) == "pending"


# N5
@pytest.mark.parametrize("body", [{"completed": "yes"}, {"colour": "red"}, [], "all"])
def test_an_invalid_replay_request_for_one_event_is_400(
    api: Server, states: States, body: object
) -> None:
    assert_problem(post(api, f"/api/events/{states.failed.id}/replay", body), 400)
    assert status(api, states.failed.id) == "failed"


# N5
@pytest.mark.parametrize("including", [{"completed": True}, {"status": "completed"}])
def test_a_filter_excludes_completed_events_by_default(
    api: Server, states: States, including: dict[str, object]
) -> None:
    source = states.completed.source
    replay(api, source=source, type="webhook*")
    assert status(api, states.completed.id) == "completed"
    assert replay(api, source=source, outcome="handled")[-1]["seen"] == 0
    replay(api, source=source, **including)
    assert status(api, states.completed.id) == "pending"


# F31
def test_a_running_event_is_409(api: Server, states: States) -> None:
    assert_problem(post(api, f"/api/events/{states.running.id}/replay"), 409)
    assert status(api, states.running.id) == "processing"


# F31
def test_a_second_replay_changes_nothing(api: Server, states: States) -> None:
    path = f"/api/events/{states.failed.id}/replay"
    did = [post(api, path).json()["did"] for _ in range(2)]
    assert did == ["replayed", "waiting"]


def test_an_unknown_event_is_404_and_an_id_that_is_no_uuid_is_400(api: Server) -> None:
    assert_problem(post(api, f"/api/events/{UNKNOWN_ID}/replay"), 404)
    assert_problem(post(api, "/api/events/x/replay"), 400)


# L11
def test_every_replay_is_in_the_audit(api: Server, states: States) -> None:
    post(api, f"/api/events/{states.failed.id}/replay", **{"Ackbox-Actor": "jo"})
    post(api, f"/api/events/{states.completed.id}/replay", {"completed": True})
    second, first = audit(api)[:2]
    assert (first["actor"], first["event_id"]) == ("jo", states.failed.id)
    assert (first["action"], first["detail"]) == ("replay", {"did": "replayed", "was": "failed"})
    assert (second["actor"], second["event_id"]) == ("http", states.completed.id)
    assert first["peer"] == second["peer"] == "127.0.0.1"  # S18
    only = api.get(f"/api/audit?event_id={states.failed.id}").json()["items"]
    assert only == [first]
    shown = api.get(f"/api/events/{states.failed.id}").json()["audit"]
    assert shown == [first]


# L11
def test_the_audit_has_pages(api: Server, states: States) -> None:
    path = f"/api/audit?event_id={states.pending.id}&limit=2"
    for _ in range(3):
        post(api, f"/api/events/{states.pending.id}/replay")
    page = api.get(path).json()
    rest = api.get(f"{path}&cursor={page['next']}").json()
    assert (len(page["items"]), len(rest["items"]), rest["next"]) == (2, 1, None)
    assert_problem(api.get("/api/audit?cursor=x"), 400)
    assert_problem(api.get("/api/audit?limit=201"), 400)


@pytest.mark.serial
def test_a_dry_run_ends_when_its_client_disconnects(tmp_path: Path) -> None:  # S21
    """Each page holds one event here, so that counting all of them takes a while."""
    body = json.dumps({"status": "pending", "dry_run": True}).encode()
    ended = 'ackbox_http_responses_total{route="/api/events/replay",status="408"}'
    with running(
        tmp_path, None, {"set": {"ackbox.http.events:preview": {"group_limit": 1}}}
    ) as server:
        headers = {"content-type": "application/json", **server.operator}
        data = request("POST", "/api/events/replay", body, headers)
        batch = b"\n".join(posted() for _ in range(1000))
        exchange(server.port, request("POST", "/webhooks/batch", batch))
        start = time.monotonic()
        assert exchange(server.port, data).json()["events"] == 1000
        whole = time.monotonic() - start

        with Wire(server.port) as disconnecting:
            disconnecting.send(data)
        eventually(lambda: server.metric(ended) == 1, within=whole / 2)

        with Wire(server.port) as half_closed:
            half_closed.send(data).socket.shutdown(socket.SHUT_WR)
            assert "before the count was complete" in assert_problem(half_closed.read(), 408)


# L11
def test_a_dry_run_counts_and_moves_nothing(api: Server, states: States) -> None:
    before = audit(api)
    source = states.failed.source
    response = post(api, "/api/events/replay", {"error": "boom", "source": source, "dry_run": True})
    assert response.json() == {
        "dry_run": True,
        "events": 2,
        "groups": [
            {"event_type": "webhook", "error_code": "boom", "events": 1},
            {"event_type": "order.paid", "error_code": "boom", "events": 1},
        ],
    }
    assert status(api, states.failed.id) == "failed"
    assert audit(api) == before


# L11
def test_matching_events_are_replayed(api: Server, states: States) -> None:
    lines = replay(api, status="dead_letter", source=states.failed.source)
    assert lines[-1] == {"seen": 1, "changed": 1, "done": True}
    assert status(api, states.failed.id) == "pending"
    assert status(api, states.completed.id) == "completed"
    assert audit(api)[0]["event_id"] == states.failed.id


# F31
def test_a_running_event_is_seen_and_not_moved(api: Server, states: States) -> None:
    assert replay(api, source=states.running.source)[-1] == {"seen": 7, "changed": 3, "done": True}
    assert status(api, states.running.id) == "processing"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dry_run": True},
        {"status": "broken"},
        {"colour": "red"},
        {"status": "failed", "rate": 0},
        {"status": "failed", "rate": 1e9},
        {"status": "failed", "since": "now"},
        {"status": "failed", "dry_run": "perhaps"},
        [],
        "all",
    ],
)
def test_an_invalid_replay_request_is_400(api: Server, body: object) -> None:
    before = audit(api)
    assert_problem(post(api, "/api/events/replay", body), 400)
    assert audit(api) == before


# F49
@pytest.mark.parametrize("path", [f"/api/events/{UNKNOWN_ID}/replay", "/api/events/replay"])
@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong"])
def test_only_operators_may_replay(api: Server, path: str, token: str) -> None:
    assert_problem(post(api, path, {"status": "failed"}, Authorization=token), 401)


# L11
def test_a_replay_by_filter_keeps_its_rate_and_ends_with_its_client(tmp_path: Path) -> None:
    dead = [envelope(f"dead-{n}", at=LONG_AGO) for n in range(300)]

    async def fill(store: Any) -> None:
        await record_in(store, dead)
        await work(store, dead, DEAD)

    seed(tmp_path / "events.db", fill)
    with running(tmp_path) as server:
        body = json.dumps({"status": "failed", "rate": 5}).encode()
        headers = {"content-type": "application/json", **server.operator}
        sent = request("POST", "/api/events/replay", body, headers)
        with Wire(server.port) as wire:
            wire.send(sent)
            wire.socket.recv(65536)  # the first lines: the replay has begun
        assert server.get("/api/stats").json()["events"]["pending"] < 300
