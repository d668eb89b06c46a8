"""Discard over HTTP: one event, or the events that match a filter (N14)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.http.posting import UNKNOWN_ID
from support.http.problems import assert_problem
from support.http.wire import Response, exchange, request
from support.ledgers.seeding import States, seed
from support.servers.server import Server, running

SOURCES = [f"s{n}" for n in range(12)]


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


def state(api: Server, event_id: str) -> tuple[Any, ...]:
    return api.row(event_id, "status, outcome")


def audit(api: Server) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/api/audit").json()["items"]
    return items


# N14
@pytest.mark.parametrize("name", ["failed", "retrying", "parked", "pending"])
def test_one_event_is_discarded(api: Server, states: States, name: str) -> None:
    event_id = getattr(states, name).id
    before = api.metric("ackbox_events_discarded_total")
    response = post(api, f"/api/events/{event_id}/discard", **{"Ackbox-Actor": "jo"})
    assert (response.status, response.json()) == (200, {"id": event_id, "did": "discarded"})
    assert state(api, event_id) == ("completed", "discarded")
    assert api.metric("ackbox_events_discarded_total") - before == 1
    (entry,) = api.get(f"/api/audit?event_id={event_id}").json()["items"]
    assert (entry["actor"], entry["action"]) == ("jo", "discard")


# N14
def test_a_running_event_is_409(api: Server, states: States) -> None:
    assert_problem(post(api, f"/api/events/{states.running.id}/discard"), 409)
    assert state(api, states.running.id)[0] == "processing"


# N14
def test_a_completed_event_stays_as_it_is(api: Server, states: States) -> None:
    path = f"/api/events/{states.completed.id}/discard"
    before = api.metric("ackbox_events_discarded_total")
    assert post(api, path).json()["did"] == "completed"
    assert state(api, states.completed.id) == ("completed", "handled")
    assert api.metric("ackbox_events_discarded_total") == before


# N14
def test_an_unknown_event_is_404_and_an_id_that_is_no_uuid_is_400(api: Server) -> None:
    assert_problem(post(api, f"/api/events/{UNKNOWN_ID}/discard"), 404)
    assert_problem(post(api, "/api/events/x/discard"), 400)
    assert_problem(api.get("/api/events/discard"), 405, allow="POST")


# N14
def test_a_dry_run_counts_and_changes_nothing(api: Server, states: States) -> None:
    before = audit(api)
    body = {"error": "boom", "source": states.failed.source, "dry_run": True}
    response = post(api, "/api/events/discard", body)
    assert (response.json()["dry_run"], response.json()["events"]) == (True, 2)
    assert state(api, states.failed.id) == ("failed", "dead")
    assert audit(api) == before


# N14
def test_matching_events_are_discarded_unless_they_run(api: Server, states: States) -> None:
    response = post(api, "/api/events/discard", {"source": states.failed.source, "rate": 10_000})
    assert response.lines()[-1] == {"seen": 7, "changed": 6, "done": True}
    assert state(api, states.running.id)[0] == "processing"
    assert state(api, states.completed.id) == ("completed", "handled")
    assert state(api, states.behind.id) == ("completed", "discarded")


# N14
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"dry_run": True},
        {"status": "broken"},
        {"outcome": "xx"},
        {"status": "failed", "completed": True},
        {"status": "failed", "rate": 0},
        [],
    ],
)
def test_an_invalid_discard_request_is_400(api: Server, body: object) -> None:
    before = audit(api)
    assert_problem(post(api, "/api/events/discard", body), 400)
    assert audit(api) == before


# N14, F49
@pytest.mark.parametrize("path", [f"/api/events/{UNKNOWN_ID}/discard", "/api/events/discard"])
def test_only_operators_may_discard(api: Server, path: str) -> None:
    assert_problem(post(api, path, {"status": "failed"}, Authorization="Bearer wrong"), 401)
