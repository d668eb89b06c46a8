"""`/in/{source}`: deliveries of real senders get 202 when they are verified and durable."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http.deliveries import (
    deliver,
    receipt,
    receiving,
    signed_by_github,
    signed_by_stripe,
    stripe_event,
)
from support.http.posting import posted
from support.http.wire import exchange, request
from support.servers.server import Server, read_ledger
from support.time.polling import eventually

BODY = b'{"ref": "refs/heads/main", "n": 1.0e+400}'


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"MAX_BODY_BYTES": "4096", "MAX_BATCH_BYTES": "8192"}
    with receiving(tmp_path_factory.mktemp("receiver"), settings=settings) as server:
        yield server
        assert "Traceback" not in server.log


def stored(server: Server, event_id: str) -> dict[str, object]:
    columns = "source, idempotency_key, event_type, payload, headers, verified_by, content_type"
    sql = f"SELECT {columns} FROM events WHERE id = ?"
    ((*values,),) = read_ledger(server.ledger, sql, event_id)
    return dict(zip(columns.split(", "), values, strict=True))


def test_a_delivery_gets_202_twice_and_is_one_event(receiver: Server) -> None:  # P2
    headers = signed_by_github(BODY, "delivery-1")
    first, second = (deliver(receiver, "github", BODY, headers) for _ in range(2))
    assert (first.status, second.status) == (202, 202)
    assert receipt(first)["duplicate"] is False
    assert receipt(second)["duplicate"] is True
    assert receipt(first)["id"] == receipt(second)["id"]
    assert set(receipt(first)) == {"id", "idempotency_key", "status", "created_at", "duplicate"}
    event = stored(receiver, receipt(first)["id"])
    assert event["payload"] == BODY
    assert (event["source"], event["idempotency_key"]) == ("github", "delivery-1")
    assert (event["event_type"], event["verified_by"]) == ("push", "github")


def test_selected_headers_are_kept_with_the_event(receiver: Server) -> None:
    headers = {**signed_by_github(b"{}", "kept"), "X-Extra": "extra", "Cookie": "secret"}
    event = stored(receiver, receipt(deliver(receiver, "github", b"{}", headers))["id"])
    assert json.loads(str(event["headers"])) == {
        "content-type": "application/json",
        "x-extra": "extra",
        "x-github-delivery": "kept",
        "x-github-event": "push",
    }


def test_two_sources_with_the_same_ids_do_not_collide(receiver: Server) -> None:  # F48
    body = b'{"shared": true}'
    headers = signed_by_github(body, "shared-id")
    receipts = [receipt(deliver(receiver, name, body, headers)) for name in ("github", "twin")]
    squatter = exchange(receiver.port, request("POST", "/in/anyone", b"x", {"X-Key": "shared-id"}))
    assert [item["duplicate"] for item in [*receipts, receipt(squatter)]] == [False] * 3


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", b"not json", b"[" * 4000, b"a=1&b=%ff"])
def test_any_bytes_are_stored_exactly(receiver: Server, body: bytes) -> None:
    response = deliver(receiver, "github", body, signed_by_github(body, f"bytes-{len(body)}"))
    assert response.status == 202
    assert stored(receiver, receipt(response)["id"])["payload"] == body


def test_a_multipart_body_is_accepted(receiver: Server) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "X-Key": "multipart"}
    response = deliver(receiver, "anyone", b"--x--", headers)
    assert response.status == 202
    event = stored(receiver, receipt(response)["id"])
    assert event["content_type"] == "multipart/form-data; boundary=x"
    assert event["verified_by"] is None


def test_the_same_key_with_another_body_is_a_conflict(receiver: Server) -> None:
    first, second = (deliver(receiver, "anyone", body, {"X-Key": "c"}) for body in (b"1", b"2"))
    assert "ackbox-conflict" not in first.headers
    assert second.headers["ackbox-conflict"] == "true"
    assert (second.status, receipt(second)["duplicate"]) == (202, True)


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({}, "The request has no signature of the sender."),
        (signed_by_github(BODY, "forged", key="wrong"), "The signature does not match"),
    ],
    ids=["unsigned", "forged"],
)
def test_a_request_that_is_not_verified_gets_401_and_stores_no_event(
    receiver: Server, headers: dict[str, str], detail: str
) -> None:  # F46
    response = deliver(receiver, "github", BODY, headers)
    assert response.status == 401
    assert response.headers["www-authenticate"] == "Signature"
    assert receipt(response)["detail"].startswith(detail)
    sql = "SELECT count(*) FROM events WHERE idempotency_key = 'forged'"
    assert read_ledger(receiver.ledger, sql) == [(0,)]


def test_a_stripe_delivery_has_its_fields_in_the_body(receiver: Server) -> None:
    body = stripe_event("evt_1")
    response = deliver(receiver, "stripe", body, signed_by_stripe(body))
    event = stored(receiver, receipt(response)["id"])
    assert (event["idempotency_key"], event["event_type"]) == ("evt_1", "invoice.paid")


@pytest.mark.parametrize("path", ["/in/nothing", "/in/nothing?a=1", "/in/GitHub"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_source_is_404(receiver: Server, method: str, path: str) -> None:
    response = exchange(receiver.port, request(method, path, b""))
    assert response.status == 404
    assert "There is no source of this name" in receipt(response)["detail"]


@pytest.mark.parametrize(("path", "status"), [("/in", 404), ("/in/github/more", 404)])
def test_a_path_near_a_source_is_404(receiver: Server, path: str, status: int) -> None:
    assert exchange(receiver.port, request("POST", path, b"")).status == status


def test_an_escaped_name_is_the_same_source(receiver: Server) -> None:
    headers = signed_by_github(b"{}", "escaped")
    assert deliver(receiver, "git%68ub", b"{}", headers).status == 202


def test_other_methods_are_405(receiver: Server) -> None:
    response = exchange(receiver.port, request("PUT", "/in/github", b""))
    assert (response.status, response.headers["allow"]) == (405, "GET, POST")
    response = exchange(receiver.port, request("GET", "/in/github"))
    assert response.status == 405


def test_a_page_of_another_origin_may_send_nothing(receiver: Server) -> None:  # S15
    headers = {**signed_by_github(BODY, "origin"), "Origin": "https://evil.example"}
    assert deliver(receiver, "github", BODY, headers).status == 403


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "gzip"}, b"x", 415),
        ({}, b"x" * 4097, 413),
        ({"Content-Length": "99999999"}, b"", 413),
    ],
)
def test_a_delivery_has_the_limits_of_an_event(
    receiver: Server, headers: dict[str, str], body: bytes, status: int
) -> None:
    signed = {**signed_by_github(body, "limits"), **headers}
    assert deliver(receiver, "github", body, signed).status == status


def test_the_side_door_is_closed(receiver: Server) -> None:
    """With a signed source, the open way in needs a token, which is not set here."""
    key = "?idempotency_key=x"
    for data in (
        request("POST", "/webhooks", posted()),
        request("POST", "/webhooks/batch", posted()),
        request("GET", f"/webhooks{key}"),
        request("GET", "/webhooks/01a1dda9-1f05-7322-b556-235eaa22593b"),
    ):
        response = exchange(receiver.port, data)
        assert response.status == 401
        assert "set ACKBOX_INGEST_TOKEN" in receipt(response)["detail"]
        assert '[sources.webhooks] verify = "none"' in receipt(response)["detail"]
    looked_up = exchange(
        receiver.port, request("GET", f"/webhooks{key}", headers=receiver.operator)
    )
    assert looked_up.status == 404


def test_metrics_have_a_label_for_each_declared_source(receiver: Server) -> None:  # F43
    deliver(receiver, "anyone", b"counted", {"X-Key": "counted"})
    name = 'ackbox_events_received_total{receipt="new",source="%s"}'
    series = receiver.get("/metrics").body.decode()
    for source in ("github", "twin", "stripe", "anyone", "webhooks"):
        assert name % source in series, source
    assert receiver.metric(name % "anyone") >= 1
    assert 'route="/in"' in series
    assert "nothing" not in series


def test_the_log_warns_of_a_source_that_verifies_nothing(receiver: Server) -> None:
    cautions = [record["reason"] for record in receiver.records() if record["event"] == "caution"]
    assert any("Anyone can send events as the source anyone" in reason for reason in cautions)


def test_no_secret_is_in_the_log_or_the_metrics(receiver: Server) -> None:  # F51
    headers = signed_by_github(BODY, "logged")
    deliver(receiver, "github", BODY, headers)
    deliver(receiver, "github", b"x", headers)
    written = receiver.log + receiver.get("/metrics").body.decode()
    for secret in ("key-of-github", "whsec_key", headers["X-Hub-Signature-256"][7:]):
        assert secret not in written


def test_a_signed_request_that_fails_is_kept_off_the_response_path(receiver: Server) -> None:
    for key in ("wrong", "wrong-too"):
        headers = signed_by_github(b"kept", "kept-for-an-operator", key=key)
        assert deliver(receiver, "twin", b"kept", headers).status == 401
    assert deliver(receiver, "twin", b"kept", {}).status == 401
    sql = "SELECT count(*) FROM quarantine WHERE source = 'twin'"
    eventually(lambda: read_ledger(receiver.ledger, sql) == [(2,)], within=10)


def test_a_refusal_is_counted_by_source_and_reason(receiver: Server) -> None:
    name = 'ackbox_source_refusals_total{reason="unsigned",source="stripe"}'
    before = receiver.metric(name)
    deliver(receiver, "stripe", b"{}", {})
    assert receiver.metric(name) == before + 1


def test_a_handshake_is_answered_as_plain_text(tmp_path: Path) -> None:
    table = '[sources.meta]\npreset = "meta"\nsecret = "env:GITHUB_KEY"\nverify_token = "env:T"\n'
    with receiving(tmp_path, table, {"T": "hello"}) as server:
        asked = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
        response = exchange(server.port, request("GET", f"/in/meta?{asked}hello"))
        assert (response.status, response.body) == (200, b"1158201444")
        assert response.headers["content-type"].startswith("text/plain")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert exchange(server.port, request("GET", f"/in/meta?{asked}wrong")).status == 403
