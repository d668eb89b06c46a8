"""New, duplicate, conflict: the receipt that a sender gets (W8, W13)."""

import re
from collections import Counter
from uuid import UUID

from support.http.posting import new_key, posted
from support.http.wire import exchange_together, request
from support.servers.server import Server, read_ledger

FIELDS = ["id", "idempotency_key", "status", "created_at"]


def test_a_new_event_is_202_with_its_receipt(server: Server) -> None:  # W13
    key = new_key()

    response = server.post(posted(key, {"n": 1}))

    assert response.status == 202
    assert response.headers["content-type"] == "application/json"
    receipt = response.json()
    assert list(receipt) == FIELDS
    assert (receipt["idempotency_key"], receipt["status"]) == (key, "pending")
    assert UUID(receipt["id"]).version == 7
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", receipt["created_at"])


def test_every_posted_field_is_stored(server: Server) -> None:  # W9, L2
    key = new_key()
    body = (
        b'{"lane":"l","source_sequence":-7,"source_emitted_at":"2026-01-31T13:00:00+01:00",'
        b'"event_type":"a.b","payload": {"b" : [1.50, "\\u00e9"] } ,"idempotency_key":"%s"}'
    )
    event_id = server.post(body % key.encode()).json()["id"]

    columns = ("source", "event_type", "lane", "source_sequence", "source_emitted_at", "status")
    assert server.row(event_id, *columns) == (
        "webhooks", "a.b", "l", -7, "2026-01-31T12:00:00.000000Z", "pending",
    )  # fmt: skip
    assert server.payload(event_id) == b'{"b" : [1.50, "\\u00e9"] }'


def test_the_event_type_is_webhook_unless_given(server: Server) -> None:
    event_id = server.post(posted(new_key())).json()["id"]

    assert server.row(event_id, "event_type", "lane", "source_sequence") == ("webhook", None, None)


def test_a_duplicate_is_200_with_the_same_receipt(server: Server) -> None:  # W8
    body = posted(new_key(), {"n": 1})
    first = server.post(body)

    again = server.post(body)

    assert (first.status, again.status) == (202, 200)
    assert again.body == first.body
    assert "ackbox-conflict" not in again.headers


def test_a_duplicate_is_counted_and_changes_nothing_else(server: Server) -> None:  # L6
    key = new_key()
    event_id = server.post(posted(key, 1)).json()["id"]
    counted = ("ingest_count", "conflict_count", "last_seen_at")
    kept = ("payload", "event_type", "updated_at", "request_id")
    before = server.row(event_id, *kept)

    server.post(posted(key, 1, event_type="other", lane="other"))

    ingests, conflicts, last_seen = server.row(event_id, *counted)
    assert (ingests, conflicts) == (2, 0)
    assert last_seen > server.row(event_id, "created_at")[0]
    assert server.row(event_id, *kept) == before


def test_the_same_key_with_another_payload_is_a_visible_conflict(server: Server) -> None:  # F30
    key = new_key()
    first = server.post(posted(key, 1))

    again = server.post(posted(key, 2))

    assert again.status == 200
    assert again.headers["ackbox-conflict"] == "true"
    assert again.json() == first.json()
    event_id = first.json()["id"]
    assert server.payload(event_id) == b"1"
    assert server.row(event_id, "ingest_count", "conflict_count") == (2, 1)


def test_a_key_in_the_header_is_the_key(server: Server) -> None:
    key = new_key()

    responses = [
        server.post(b'{"payload":1}', {"Idempotency-Key": key}),
        server.post(posted(key, 1)),
        server.post(posted(key, 1), {"Idempotency-Key": key}),
    ]

    assert [response.status for response in responses] == [202, 200, 200]
    assert len({response.json()["id"] for response in responses}) == 1


def test_one_of_100_senders_of_one_event_gets_202(server: Server) -> None:  # F30
    key = new_key()

    responses = exchange_together(server.port, [request("POST", "/webhooks", posted(key, 1))] * 100)

    assert Counter(response.status for response in responses) == {202: 1, 200: 99}
    (event_id,) = {response.json()["id"] for response in responses}
    assert not any("ackbox-conflict" in response.headers for response in responses)
    assert rows_of(server, key) == [(event_id, 100, 0)]


def test_one_of_100_payloads_under_one_key_is_stored(server: Server) -> None:  # F30
    key = new_key()
    requests = [request("POST", "/webhooks", posted(key, number)) for number in range(100)]

    responses = exchange_together(server.port, requests)

    assert Counter(response.status for response in responses) == {202: 1, 200: 99}
    (event_id,) = {response.json()["id"] for response in responses}
    winner = [response.status for response in responses].index(202)
    assert server.payload(event_id) == str(winner).encode()
    assert sum("ackbox-conflict" in response.headers for response in responses) == 99
    assert rows_of(server, key) == [(event_id, 100, 99)]


def test_different_keys_at_once_are_all_new(server: Server) -> None:
    bodies = [posted(new_key(), number) for number in range(100)]

    responses = exchange_together(server.port, [request("POST", "/webhooks", b) for b in bodies])

    assert {response.status for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 100


def test_a_bad_event_among_many_fails_alone(server: Server) -> None:  # F28
    bad = [
        b'{"payload":"\\ud800"}',
        b'{"payload":1,"source_sequence":9223372036854775808}',
        b"\xff",
    ]
    requests = [
        request("POST", "/webhooks", body) for body in [*bad, *[posted() for _ in range(61)]]
    ]

    responses = exchange_together(server.port, requests)

    assert [response.status for response in responses] == [400] * 3 + [202] * 61


def test_a_key_is_not_found_under_another_source(server: Server) -> None:  # F48
    key = new_key()
    server.post(posted(key))

    assert server.get(f"/webhooks?idempotency_key={key}").status == 200
    assert (
        server.get(f"/webhooks?idempotency_key={key}&source=stripe", server.operator).status == 404
    )


def rows_of(server: Server, key: str) -> list[tuple[object, ...]]:
    sql = "SELECT id, ingest_count, conflict_count FROM events WHERE idempotency_key = ?"
    return read_ledger(server.ledger, sql, key)
