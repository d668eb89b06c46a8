"""A delivery of several events over HTTP: each item is an event, and a bad item is visible."""

import json
from datetime import UTC, datetime
from pathlib import Path

from ackbox.model import InboundRequest
from ackbox.sources.presets import PRESETS
from support.http.deliveries import deliver, receipt, receiving
from support.servers.server import Server, read_ledger
from support.sources.by_senders import private_key, settings
from support.time.polling import eventually

TABLE = '[sources.mail]\npreset = "sendgrid"\nsecret = "env:MAIL_KEY"\n'
ITEMS = [json.dumps({"sg_event_id": f"e{n}", "event": "open"}).encode() for n in range(10)]
BAD = b'"no object"'


def body_of(items: list[bytes]) -> bytes:
    return b"[" + b",\r\n".join(items) + b"]\r\n"


def send(server: Server, body: bytes) -> dict[str, object]:
    """Sign the body with a key of our own, and return the receipt."""
    request = InboundRequest("POST", "/in/mail", (), body, datetime.now(UTC))
    signed = PRESETS["sendgrid"].scheme(settings(private_key())).sign(request)
    response = deliver(server, "mail", body, dict(signed.headers))
    assert response.status == 202
    return receipt(response)


def test_a_delivery_of_ten_with_one_bad_item_is_nine_events_and_one_refusal(
    tmp_path: Path,
) -> None:
    body = body_of([*ITEMS[:4], BAD, *ITEMS[5:]])
    with receiving(tmp_path, TABLE, {"MAIL_KEY": private_key()}) as server:
        first, second = send(server, body), send(server, body)
        assert (first["duplicate"], second["duplicate"]) == (False, True)
        rejected = eventually(lambda: server.get("/api/quarantine").json()["items"], within=10)
        good = send(server, body_of(ITEMS[:5]))
        sql = "SELECT idempotency_key, payload FROM events WHERE parent_id = ? ORDER BY ledger_id"
        items = read_ledger(server.ledger, sql, first["id"])
        new = read_ledger(server.ledger, sql, good["id"])
        shown = server.get(f"/api/events/{first['id']}").json()
        payload = server.get(f"/api/events/{first['id']}/payload").body
    assert [key for key, _ in items] == [f"e{n}" for n in range(10) if n != 4]
    assert [payload for _, payload in items][4] == b"[" + ITEMS[5] + b"]\r\n"
    assert (shown["outcome"], shown["event_type"], payload) == ("split", "delivery", body)
    assert [(item["source"], item["reason"]) for item in rejected] == [("mail", "unreadable")]
    assert [key for key, _ in new] == ["e4"]


def test_items_that_are_larger_than_the_buffer_are_recorded_alone(tmp_path: Path) -> None:
    wide = [json.dumps({"sg_event_id": f"w{n}", "text": "x" * 700}).encode() for n in range(4)]
    small = {"MAX_BODY_BYTES": "3KiB", "MAX_BATCH_BYTES": "4KiB", "INGEST_BUFFER_BYTES": "4KiB"}
    with receiving(tmp_path, TABLE, {"MAIL_KEY": private_key(), **small}) as server:
        assert send(server, body_of(wide))["duplicate"] is False
