"""`/api/events` for deliveries whose items are events of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackbox.model import OutcomeName
from ackbox.stores.sqlite.store import SqliteStore
from support.http.posting import UNKNOWN_ID
from support.http.wire import Response, exchange, request
from support.ledgers.events import envelope, record_in
from support.ledgers.seeding import seed
from support.servers.server import Server, running

WHOLE = envelope("delivery", b"[1, 2]", outcome=OutcomeName.SPLIT)
ITEMS = [envelope(f"item-{n:02}", parent_id=WHOLE.id) for n in range(25)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    async def fill(store: SqliteStore) -> None:
        await record_in(store, [envelope("plain"), WHOLE, *ITEMS])

    folder: Path = tmp_path_factory.mktemp("deliveries")
    seed(folder / "events.db", fill)
    with running(folder) as server:
        yield server


def test_a_delivery_shows_its_first_items_and_each_item_its_delivery(api: Server) -> None:
    shown = api.get(f"/api/events/{WHOLE.id}").json()
    assert (shown["status"], shown["outcome"], shown["parent_id"]) == ("completed", "split", None)
    first = shown["items"]
    assert [item["id"] for item in first["items"]] == [item.id for item in ITEMS[:20]]
    rest = api.get(f"/api/events?parent={WHOLE.id}&order=oldest&cursor={first['next']}").json()
    assert [item["id"] for item in rest["items"]] == [item.id for item in ITEMS[20:]]
    assert {item["parent_id"] for item in rest["items"]} == {WHOLE.id}
    item = api.get(f"/api/events/{ITEMS[0].id}").json()
    assert (item["parent_id"], item["items"]) == (WHOLE.id, {"items": [], "next": None})


def test_an_unknown_parent_has_no_events_and_an_id_that_is_no_uuid_is_400(api: Server) -> None:
    unknown = api.get(f"/api/events?parent={UNKNOWN_ID}").json()
    assert unknown == {"items": [], "next": None}
    assert api.get("/api/events?parent=delivery").status == 400


def test_a_delivery_cannot_be_replayed_but_its_items_can(api: Server) -> None:
    for body in (None, b'{"completed": true}'):
        refused = post(api, f"/api/events/{WHOLE.id}/replay", body)
        assert refused.status == 409
        assert "items" in refused.json()["detail"]
    body = f'{{"parent": "{WHOLE.id}", "dry_run": true}}'.encode()
    assert post(api, "/api/events/replay", body).json()["events"] == 25


def post(api: Server, path: str, body: bytes | None) -> Response:
    headers = {"Content-Type": "application/json", **api.operator}
    return exchange(api.port, request("POST", path, body, headers))
