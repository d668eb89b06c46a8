"""`/api/events`, `/api/stats`, `/api/audit`: what operators see (L7, L11)."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from support.events import envelopes
from support.posting import NOBODYS_ID
from support.seeding import LONG_AGO, States, seed
from support.server import Server, running
from support.wire import Response


@pytest.fixture(scope="module")
def states() -> States:
    return States()


@pytest.fixture(scope="module")
def api(states: States, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It has no workers, so that every event stays as it is."""
    folder = tmp_path_factory.mktemp("api")
    seed(folder / "events.db", states.seed)
    with running(folder) as server:
        yield server


def listed(api: Server, **asked: object) -> dict[str, Any]:
    answer = api.get(f"/api/events?{urlencode(asked)}")
    assert answer.status == 200, answer.body
    page: dict[str, Any] = answer.json()
    return page


def keys(page: dict[str, Any]) -> list[str]:
    return [item["idempotency_key"] for item in page["items"]]


# L11
@pytest.mark.parametrize(
    ("asked", "found"),
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
def test_events_are_listed_by_filter(api: Server, asked: dict[str, str], found: set[str]) -> None:
    assert set(keys(listed(api, **asked))) == found


# L11
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_cursors_lead_through_all_events_once(api: Server, states: States, order: str) -> None:
    seen: list[str] = []
    asked: dict[str, object] = {"order": order, "limit": 3}
    while True:
        page = listed(api, **asked)
        seen += keys(page)
        if page["next"] is None:
            break
        asked["cursor"] = page["next"]
    sent = [one.idempotency_key for one in states.all]
    assert seen == (sent if order == "oldest" else sent[::-1])


# L7
def test_the_order_of_a_source_is_a_choice(api: Server) -> None:
    page = listed(api, order="source", source="webhooks", limit=2)
    assert keys(page) == ["pending", "retrying"]
    page = listed(api, order="source", source="webhooks", limit=2, cursor=page["next"])
    assert keys(page) == ["parked", "running"]
    assert keys(listed(api, order="source", source="shop")) == ["completed"]
    assert len(keys(listed(api, order="source"))) == 7  # of `webhooks`


@pytest.mark.parametrize(
    "asked",
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
def test_what_is_not_understood_is_400(api: Server, asked: str) -> None:
    answer = api.get(f"/api/events?{asked}")
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_moment_beyond_the_calendar_is_its_end(api: Server) -> None:
    assert len(keys(listed(api, since="0001-01-01T00:00:00+14:00"))) == 8
    assert len(keys(listed(api, until="9999-12-31T23:59:59-14:00"))) == 8


# L11
def test_one_event_is_told_whole(api: Server, states: States) -> None:
    told = api.get(f"/api/events/{states.failed.id}").json()
    assert (told["status"], told["attempts"], told["error_code"]) == ("failed", 1, "boom")
    (failure,) = told["errors"]
    assert (failure["code"], failure["error"], failure["run"]) == ("boom", "it broke", 1)
    assert failure["traceback"] == "where it broke"  # N2
    assert told["claimable_at"] is None
    assert "payload" not in told


# L11
def test_a_running_event_says_who_holds_it_until_when(api: Server, states: States) -> None:
    told = api.get(f"/api/events/{states.running.id}").json()
    assert told["processor_id"] == "a-worker"
    assert told["lease_until"] == told["claimable_at"]


# L11
def test_an_event_of_a_lane_says_what_it_waits_for(api: Server, states: States) -> None:
    told = api.get(f"/api/events/{states.behind.id}").json()
    assert told["behind"]["id"] == states.head.id
    assert api.get(f"/api/events/{states.head.id}").json()["behind"] is None


# F49
def test_a_payload_comes_byte_for_byte_and_only_as_a_file(api: Server, states: States) -> None:
    binary = api.get(f"/api/events/{states.pending.id}/payload")
    assert binary.body == states.pending.payload
    assert binary.headers["content-type"] == "application/octet-stream"
    text = api.get(f"/api/events/{states.failed.id}/payload")
    assert text.body == states.failed.payload
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    for answer in (binary, text):
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["", "/payload"])
def test_an_unknown_event_is_404_and_no_uuid_is_400(api: Server, path: str) -> None:
    assert api.get(f"/api/events/{NOBODYS_ID}{path}").status == 404
    assert api.get(f"/api/events/no-uuid{path}").status == 400


# L11
def test_stats_count_what_stands_where(api: Server) -> None:
    told = api.get("/api/stats").json()
    assert told["events"] == {"pending": 5, "processing": 1, "completed": 1, "failed": 1}
    assert told["oldest_pending_seconds"] >= 7200


# F49
@pytest.mark.parametrize(
    "path", ["/api/events", f"/api/events/{NOBODYS_ID}", "/api/stats", "/api/audit"]
)
def test_only_operators_may_look(api: Server, path: str) -> None:
    refused: Response = api.get(path, {"Authorization": "Bearer wrong"})
    assert refused.status == 401


# L13
def test_a_rare_filter_has_short_pages_and_a_next(
    states: States, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rare")

    async def fill(store: Any) -> None:
        await store.record([states.failed, *envelopes(40)])

    seed(folder / "events.db", fill)
    changes = {"set": {"ackbox.stores.paging:WINDOW": 5}}
    with running(folder, changes=changes) as server:
        pages = [listed(server, type="order.paid", limit=3)]
        while pages[-1]["next"] is not None:
            pages.append(listed(server, type="order.paid", limit=3, cursor=pages[-1]["next"]))
    assert [key for page in pages for key in keys(page)] == ["failed"]
    assert len(pages) > 5
