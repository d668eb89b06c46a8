"""How the way in through `/webhooks` is opened beside a signed source."""

import json
from pathlib import Path

import pytest

from support.http.deliveries import (
    TABLES,
    deliver,
    receipt,
    receiving,
    signed_by_github,
)
from support.http.posting import posted
from support.http.wire import exchange, request

OPEN = '[sources.webhooks]\nverify = "none"\n'
TOKEN = "token-of-the-senders"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_verify_none_opens_webhooks_again(tmp_path: Path) -> None:
    with receiving(tmp_path, TABLES + OPEN) as server:
        assert exchange(server.port, request("POST", "/webhooks", posted())).status == 202
        cautions = [item["reason"] for item in server.records() if item["event"] == "caution"]
        assert any(reason.startswith("Anyone can send events to /webhooks") for reason in cautions)


def test_a_token_opens_webhooks_and_sees_no_other_source(tmp_path: Path) -> None:
    with receiving(tmp_path, settings={"INGEST_TOKEN": TOKEN}) as server:
        body = json.dumps({"idempotency_key": "k", "payload": 1}).encode()
        assert exchange(server.port, request("POST", "/webhooks", body, BEARER)).status == 202
        assert exchange(server.port, request("POST", "/webhooks", body)).status == 401
        delivered = receipt(deliver(server, "github", b"{}", signed_by_github(b"{}", "hidden")))
        for path, status in (
            ("/webhooks?idempotency_key=k", 200),
            ("/webhooks?idempotency_key=hidden", 404),
            (f"/webhooks/{delivered['id']}", 404),
            ("/webhooks?idempotency_key=hidden&source=github", 401),
        ):
            assert exchange(server.port, request("GET", path, headers=BEARER)).status == status


@pytest.mark.parametrize("table", ['[sources.a]\nverify = "none"\n', ""])
def test_without_a_signed_source_webhooks_stay_open(tmp_path: Path, table: str) -> None:
    with receiving(tmp_path, table) as server:
        assert exchange(server.port, request("POST", "/webhooks", posted())).status == 202
