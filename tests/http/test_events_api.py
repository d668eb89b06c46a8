"""`/api/events`, `/api/stats` and `/api/audit`: the read routes of operators (L7, L11)."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from support.http.posting import UNKNOWN_ID
from support.http.wire import Response
from support.ledgers.events import envelopes, record_in
from support.ledgers.seeding import LONG_AGO, States, seed
from support.servers.server import Server, running


@pytest.fixture(scope="module")
def states() -> States:
    return States()


@pytest.fixture(scope="module")
def api(states: States, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without workers, so that every event keeps its status."""
    folder = tmp_path_factory.mktemp("api")
    seed(folder / "events.db", states.seed)
    with running(folder) as server:
        yield server


def list_events(api: Server, **parameters: object) -> dict[str, Any]:
    response = api.get(f"/api/events?{urlencode(parameters)}")
    assert response.status == 200, response.body
    page: dict[str, Any] = response.json()
    return page


def keys(page: dict[str, Any]) -> list[str]:
    return [item["idempotency_key"] for item in page["items"]]


# L11
@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"status": "failed"}, {"failed"}),
        ({"status": "dead_letter"}, {"failed"}),
        ({"status": "processing"}, {"running"}),
        ({"status": "processed"}, {"completed"}),
        ({"status": "error"}, {"retrying"}),
        ({"status": "received"}, {"pending", "retrying", "parked", "head", "behind"}),
        ({"outcome": "parked"}, {"parked"}),
        ({"outcome": "handled"}, {"completed"}),
        ({"error": "boom"}, {"failed", "retrying"}),
        ({"error": "boom", "status": "failed"}, {"failed"}),
        ({"type": "order.paid"}, {"failed"}),
        ({"source": "shop"}, {"completed"}),
        ({"lane": "customer-1"}, {"head", "behind"}),
        ({"since": LONG_AGO.isoformat(), "status": "failed"}, {"failed"}),
        ({"until": LONG_AGO.isoformat()}, set()),
        ({"since": "2999-01-01"}, set()),
    ],
)
def test_events_are_listed_by_filter(
    api: Server, parameters: dict[str, str], expected: set[str]
) -> None:
    assert set(keys(list_events(api, **parameters))) == expected


# L11
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_pages_show_every_event_once(api: Server, states: States, order: str) -> None:
    seen: list[str] = []
    parameters: dict[str, object] = {"order": order, "limit": 3}
    while True:
        page = list_events(api, **parameters)
        seen += keys(page)
        if page["next"] is None:
            break
        parameters["cursor"] = page["next"]
    sent = [envelope.idempotency_key for envelope in states.all]
    assert seen == (sent if order == "oldest" else sent[::-1])


# L7
def test_events_may_be_listed_in_the_order_of_their_source(api: Server) -> None:
    page = list_events(api, order="source", source="webhooks", limit=2)
    assert keys(page) == ["pending", "retrying"]
    page = list_events(api, order="source", source="webhooks", limit=2, cursor=page["next"])
    assert keys(page) == ["parked", "running"]
    assert keys(list_events(api, order="source", source="shop")) == ["completed"]
    assert len(keys(list_events(api, order="source"))) == 7  # of `webhooks`


@pytest.mark.parametrize(
    "query",
    [
        "outcome=xx",
        "type=a*b",
        "status=broken",
        "status=",
        "limit=0",
        "limit=201",
        "limit=many",
        "cursor=abc",
        "cursor=-1",
        "cursor=9999999999999999999999",
        "since=yesterday",
        "order=random",
        "order=source&source=shop&cursor=99999999999999999999,~,0",
        "order=source&source=shop&cursor=7,8",
        "lane=",
        "source=a%00b",
        "type=" + "x" * 256,
        "colour=red",
    ],
)
def test_an_invalid_query_is_400(api: Server, query: str) -> None:
    response = api.get(f"/api/events?{query}")
    assert response.status == 400
    assert response.headers["content-type"] == "application/problem+json"


def test_a_time_beyond_the_calendar_becomes_the_end_of_it(api: Server) -> None:
    assert len(keys(list_events(api, since="0001-01-01T00:00:00+14:00"))) == 8
    assert len(keys(list_events(api, until="9999-12-31T23:59:59-14:00"))) == 8


# L11
def test_one_event_is_shown_with_its_history(api: Server, states: States) -> None:
    detail = api.get(f"/api/events/{states.failed.id}").json()
    assert (detail["status"], detail["attempts"], detail["error_code"]) == ("failed", 1, "boom")
    (failure,) = detail["errors"]
    assert (failure["code"], failure["error"], failure["run"]) == ("boom", "it broke", 1)
    assert failure["traceback"] == "where it broke"  # N2
    assert detail["claimable_at"] is None
    assert "payload" not in detail


# L11
def test_a_running_event_shows_its_worker_and_its_lease(api: Server, states: States) -> None:
    detail = api.get(f"/api/events/{states.running.id}").json()
    assert detail["processor_id"] == "a-worker"
    assert detail["lease_until"] == detail["claimable_at"]


# L11
def test_an_event_of_a_lane_shows_the_event_it_waits_for(api: Server, states: States) -> None:
    detail = api.get(f"/api/events/{states.behind.id}").json()
    assert detail["behind"]["id"] == states.head.id
    assert api.get(f"/api/events/{states.head.id}").json()["behind"] is None


# F49
def test_a_payload_is_returned_byte_for_byte_and_only_as_a_file(
    api: Server, states: States
) -> None:
    binary = api.get(f"/api/events/{states.pending.id}/payload")
    assert binary.body == states.pending.payload
    assert binary.headers["content-type"] == "application/octet-stream"
    text = api.get(f"/api/events/{states.failed.id}/payload")
    assert text.body == states.failed.payload
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    for response in (binary, text):
        assert response.headers["content-disposition"].startswith("attachment;")
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["", "/payload"])
def test_an_unknown_event_is_404_and_an_id_that_is_no_uuid_is_400(api: Server, path: str) -> None:
    assert api.get(f"/api/events/{UNKNOWN_ID}{path}").status == 404
    assert api.get(f"/api/events/no-uuid{path}").status == 400


# L11
def test_stats_count_events_by_status(api: Server) -> None:
    stats = api.get("/api/stats").json()
    assert stats["events"] == {"pending": 5, "processing": 1, "completed": 1, "failed": 1}
    assert stats["oldest_pending_seconds"] >= 7200


# F49
@pytest.mark.parametrize(
    "path", ["/api/events", f"/api/events/{UNKNOWN_ID}", "/api/stats", "/api/audit"]
)
def test_only_operators_may_read(api: Server, path: str) -> None:
    refused: Response = api.get(path, {"Authorization": "Bearer wrong"})
    assert refused.status == 401


# L13
def test_a_rare_filter_has_short_pages_and_a_next(
    states: States, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rare")

    async def fill(store: Any) -> None:
        await record_in(store, [states.failed, *envelopes(40)])

    seed(folder / "events.db", fill)
    changes = {"set": {"ackbox.stores.paging:WINDOW": 5}}
    with running(folder, changes=changes) as server:
        pages = [list_events(server, type="order.paid", limit=3)]
        while pages[-1]["next"] is not None:
            pages.append(list_events(server, type="order.paid", limit=3, cursor=pages[-1]["next"]))
    assert [key for page in pages for key in keys(page)] == ["failed"]
    assert len(pages) > 5
