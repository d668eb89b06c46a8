"""Requests with a wrong signature are kept, shown without secrets, and released once."""

import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ackbox.model import InboundRequest, QuarantineBudget
from ackbox.stores.sqlite.store import SqliteStore
from support.http.deliveries import (
    GITHUB_KEY,
    TABLES,
    deliver,
    receiving,
    signed_by_github,
    signed_by_stripe,
    stripe_event,
)
from support.http.problems import assert_problem
from support.http.wire import Response, Wire, exchange, request
from support.ledgers.refused import refused
from support.ledgers.seeding import seed
from support.servers.server import Server, read_ledger
from support.time.polling import eventually

WRONG = "an-old-key"
SECRET = "hunter2-9c1d"


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a wrong secret of the source `github`."""
    settings = {"GITHUB_KEY": WRONG, "LOG_LEVEL": "WARNING"}
    with receiving(tmp_path_factory.mktemp("wrong"), settings=settings) as server:
        yield server
        assert "Traceback" not in server.log


def post(server: Server, path: str, body: object = None, **headers: str) -> Response:
    raw = b"" if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json", **server.operator, **headers}
    return exchange(server.port, request("POST", path, raw, sent))


def listed(server: Server, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.get(f"/api/quarantine{query}").json()["items"]
    return items


def kept(server: Server, body: bytes, delivery: str, **headers: str) -> int:
    """Send a request that is refused, and return its id in the quarantine."""
    before = max((item["id"] for item in listed(server, "?limit=200")), default=0)
    sent = {**signed_by_github(body, delivery), **headers}
    assert deliver(server, "github", body, sent).status == 401
    return int(eventually(lambda: [i["id"] for i in listed(server) if i["id"] > before])[0])


def test_500_requests_are_released_after_the_secret_is_fixed(tmp_path: Path) -> None:
    bodies = {f"delivery-{n}": json.dumps({"n": n}).encode() for n in range(500)}
    with receiving(tmp_path, settings={"GITHUB_KEY": WRONG, "LOG_LEVEL": "WARNING"}) as server:
        with Wire(server.port) as wire:
            for delivery, body in bodies.items():
                headers = signed_by_github(body, delivery)
                response = wire.send(request("POST", "/in/github", body, headers)).read()
                assert response.status == 401
        eventually(lambda: server.metric('ackbox_quarantine_requests{source="github"}') == 500)
        assert server.metric('ackbox_quarantine_kept_total{source="github"}') == 500
        health = server.get("/health", server.operator).json()
        assert health["refusals"] == {"github": 500, "twin": 0, "stripe": 0, "anyone": 0}
        assert "refusals" not in server.get("/health").json()
        server.environment["GITHUB_KEY"] = GITHUB_KEY
        server.stop()
        server.restart()
        for delivery in list(bodies)[100:150]:
            body = bodies[delivery]
            again = deliver(server, "github", body, signed_by_github(body, delivery))
            assert again.status == 202
        *_, done = post(server, "/api/quarantine/release", {"source": "github"}).lines()
        assert done == {
            "seen": 500,
            "released": 450,
            "duplicate": 50,
            "refused": 0,
            "no_source": 0,
            "done": True,
        }
        stored = read_ledger(server.ledger, "SELECT idempotency_key, payload FROM events")
        assert sorted(stored) == sorted(bodies.items())
        assert listed(server) == []
        assert server.metric("ackbox_quarantine_released_total") == 500
        eventually(lambda: server.metric('ackbox_quarantine_bytes{source="github"}') == 0)


def test_a_request_without_a_signature_is_not_kept(wrong: Server) -> None:
    before = wrong.metric('ackbox_source_refusals_total{reason="unsigned",source="stripe"}')
    assert deliver(wrong, "stripe", b"{}", {}).status == 401
    after = wrong.metric('ackbox_source_refusals_total{reason="unsigned",source="stripe"}')
    assert after - before == 1
    kept(wrong, b"{}", "later")  # the request before it would be kept by now
    assert listed(wrong, "?source=stripe") == []


# F51
def test_a_request_is_shown_without_what_may_be_secret(wrong: Server) -> None:
    headers = {
        **signed_by_github(b'{"a": "\xc3\xa9"}', "shown"),
        "Authorization": f"Bearer {SECRET}",
        "Cookie": f"session={SECRET}",
        "X-Gitlab-Token": SECRET,
    }
    url = f"/in/github?token={SECRET}"
    before = {item["id"] for item in listed(wrong, "?limit=200")}
    response = exchange(wrong.port, request("POST", url, b'{"a": "\xc3\xa9"}', headers))
    assert response.status == 401
    (new,) = eventually(lambda: {i["id"] for i in listed(wrong, "?limit=200")} - before)
    response = wrong.get(f"/api/quarantine/{new}")
    shown = response.json()
    assert SECRET not in response.body.decode()
    assert signed_by_github(b'{"a": "\xc3\xa9"}', "shown")["X-Hub-Signature-256"] not in str(shown)
    assert (shown["source"], shown["reason"]) == ("github", "bad_signature")
    assert (shown["method"], shown["path"]) == ("POST", "/in/github?(hidden)")
    assert ["x-github-delivery", "shown"] in shown["headers"]
    assert ["cookie", "(hidden)"] in shown["headers"]
    assert (shown["text"], shown["hex"], shown["body_bytes"]) == ('{"a": "\xe9"}', None, 11)
    assert SECRET not in wrong.log


TOKEN_TABLE = """
[sources.shop]
preset = "header"
header = "X-Auth"
secret = "env:GITHUB_KEY"
"""


# F51
def test_the_header_that_a_source_declares_for_its_token_is_hidden(tmp_path: Path) -> None:
    with receiving(tmp_path, TOKEN_TABLE) as server:
        headers = {"X-Auth": SECRET, "X-Topic": "orders"}
        assert deliver(server, "shop", b"{}", headers).status == 401
        (item,) = eventually(lambda: listed(server))
        shown = server.get(f"/api/quarantine/{item['id']}").json()["headers"]
    assert ["x-auth", "(hidden)"] in shown
    assert ["x-topic", "orders"] in shown


def test_the_exact_bytes_of_a_body_are_a_file(wrong: Server) -> None:
    number = kept(wrong, b"\x00\xff<script>", "bytes")
    shown = wrong.get(f"/api/quarantine/{number}").json()
    assert (shown["text"], shown["hex"][:5]) == (None, "00 ff")
    response = wrong.get(f"/api/quarantine/{number}/body")
    assert response.body == b"\x00\xff<script>"
    assert response.headers["content-disposition"].startswith("attachment")


def test_one_request_that_still_fails_is_409_and_stays(wrong: Server) -> None:
    number = kept(wrong, b"{}", "still-wrong")
    response = post(wrong, f"/api/quarantine/{number}/release")
    assert_problem(response, 409)
    assert "secret" in response.json()["detail"]
    assert wrong.get(f"/api/quarantine/{number}").status == 200


def test_one_request_is_dropped_and_audited(wrong: Server) -> None:
    number = kept(wrong, b"{}", "dropped")
    response = post(wrong, f"/api/quarantine/{number}/drop", **{"Ackbox-Actor": "jo"})
    assert (response.status, response.json()) == (200, {"id": number, "did": "dropped"})
    assert_problem(wrong.get(f"/api/quarantine/{number}"), 404)
    assert_problem(post(wrong, f"/api/quarantine/{number}/drop"), 404)
    assert_problem(post(wrong, f"/api/quarantine/{number}/release"), 404)
    entry = wrong.get("/api/audit").json()["items"][0]
    assert (entry["actor"], entry["action"]) == ("jo", "quarantine")
    assert entry["detail"]["quarantine_id"] == number


def test_a_dry_run_changes_nothing(wrong: Server) -> None:
    number = kept(wrong, b"{}", "dry")
    (release,) = post(wrong, "/api/quarantine/release", {"all": True, "dry_run": True}).lines()
    assert release["seen"] == release["refused"] >= 1
    assert release["done"] is True
    (drop,) = post(wrong, "/api/quarantine/drop", {"all": True, "dry_run": True}).lines()
    assert drop["dropped"] >= 1
    assert wrong.get(f"/api/quarantine/{number}").status == 200


def test_a_list_has_pages_and_filters(wrong: Server) -> None:
    for name in ("one", "two"):
        kept(wrong, b"{}", name)
    assert listed(wrong, "?source=twin") == []
    assert listed(wrong, "?reason=bad_time") == []
    page = wrong.get("/api/quarantine?source=github&reason=bad_signature&limit=1").json()
    following = wrong.get(f"/api/quarantine?source=github&cursor={page['next']}").json()
    assert following["items"][0]["id"] > page["items"][0]["id"]


@pytest.mark.parametrize("action", ["release", "drop"])
@pytest.mark.parametrize(
    "body", [{}, {"all": False}, {"source": ""}, {"reason": "other"}, {"everything": True}]
)
def test_an_action_without_a_valid_selection_is_400(
    wrong: Server, action: str, body: object
) -> None:
    assert_problem(post(wrong, f"/api/quarantine/{action}", body), 400)


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30])
def test_an_impossible_id_is_400(wrong: Server, number: str) -> None:
    assert_problem(wrong.get(f"/api/quarantine/{number}"), 400)


def test_requests_are_dropped_by_source(wrong: Server) -> None:
    body = stripe_event("evt_1")
    deliver(wrong, "stripe", body, signed_by_stripe(body, key="whsec_other"))
    eventually(lambda: listed(wrong, "?source=stripe"))
    *_, done = post(wrong, "/api/quarantine/drop", {"source": "stripe"}).lines()
    assert done == {"dropped": 1, "done": True}
    assert listed(wrong, "?source=stripe") == []


def test_a_share_that_is_full_drops_the_newest(tmp_path: Path) -> None:
    settings = {"GITHUB_KEY": WRONG, "LOG_LEVEL": "WARNING", "QUARANTINE_BYTES": "8KiB"}
    with receiving(tmp_path, settings=settings) as server:  # 2 KiB for each of four sources
        for n in range(10):
            body = json.dumps({"n": n}).encode().ljust(400)
            assert deliver(server, "github", body, signed_by_github(body, f"{n}")).status == 401
        dropped = 'ackbox_quarantine_dropped_total{source="github"}'
        eventually(lambda: server.metric(dropped) + len(listed(server)) == 10)
        assert 1 <= len(listed(server)) <= 5
        first = server.get(f"/api/quarantine/{listed(server)[0]['id']}").json()
        assert json.loads(first["text"]) == {"n": 0}
        body = stripe_event("evt_2")
        deliver(server, "stripe", body, signed_by_stripe(body, key="whsec_other"))
        eventually(lambda: listed(server, "?source=stripe"))
        eventually(lambda: sends_and_finds_it_full(server))


def sends_and_finds_it_full(server: Server) -> bool:
    """Send one more request, which may be dropped in memory already, before the store is full."""
    body = b"{}".ljust(400)
    assert deliver(server, "github", body, signed_by_github(body, "more")).status == 401
    return "quarantine is full" in server.log


def test_a_delivery_of_ten_with_one_bad_item(tmp_path: Path) -> None:
    tables = TABLES + (
        '[sources.batches]\npreset = "hmac"\nsecret = "env:GITHUB_KEY"\nheader = "X-Signature"\n'
        'split = ""\nkey = "/0/id"\n'
    )
    items: list[object] = [{"id": f"item-{n}"} for n in range(10)]
    items[4] = "bad"
    body = json.dumps(items).encode()
    signature = hmac.new(GITHUB_KEY.encode(), body, "sha256").hexdigest()
    with receiving(tmp_path, tables, {"LOG_LEVEL": "WARNING"}) as server:
        first, second = (
            deliver(server, "batches", body, {"X-Signature": signature}) for _ in range(2)
        )
        assert (first.status, second.status) == (202, 202)
        rows = read_ledger(server.ledger, "SELECT payload FROM events WHERE parent_id IS NOT NULL")
        assert len(rows) == 9
        assert read_ledger(server.ledger, "SELECT count(*) FROM events") == [(10,)]
        (item,) = eventually(lambda: listed(server))
        assert (item["reason"], item["delivery_id"]) == ("unreadable", first.json()["id"])
        shown = server.get(f"/api/quarantine/{item['id']}").json()
        assert json.loads(shown["text"]) == ["bad"]
        assert_problem(post(server, f"/api/quarantine/{item['id']}/release"), 409)
        name = 'ackbox_source_refusals_total{reason="unreadable",source="batches"}'
        assert server.metric(name) == 1


def test_a_server_that_is_killed_during_a_release_records_each_event_once(tmp_path: Path) -> None:
    bodies = {f"delivery-{n}": json.dumps({"n": n}).encode() for n in range(400)}

    async def fill(store: SqliteStore) -> None:
        requests = [
            replace(refused("github"), request=signed_request(body, delivery))
            for delivery, body in bodies.items()
        ]
        await store.quarantine.keep(requests, QuarantineBudget(1 << 30, 1 << 30))

    seed(tmp_path / "events.db", fill)
    release = json.dumps({"all": True}).encode()
    with receiving(tmp_path, settings={"LOG_LEVEL": "WARNING"}) as server:
        with Wire(server.port) as wire:
            headers = {"content-type": "application/json", **server.operator}
            wire.send(request("POST", "/api/quarantine/release", release, headers))
            while b'"seen"' not in wire.socket.recv(65536):
                pass
            server.kill()
        server.restart()
        before = len(read_ledger(server.ledger, "SELECT 1 FROM events"))
        assert 100 <= before <= 400
        *_, done = post(server, "/api/quarantine/release", {"all": True}).lines()
        stored = read_ledger(server.ledger, "SELECT idempotency_key, payload FROM events")
        assert sorted(stored) == sorted(bodies.items())
        assert done["released"] == 400 - before
        assert listed(server) == []


def signed_request(body: bytes, delivery: str) -> InboundRequest:
    headers = signed_by_github(body, delivery).items()
    lower = tuple((name.lower(), value) for name, value in headers)
    return InboundRequest("POST", "/in/github", lower, body, datetime.now(UTC), "request-1")
