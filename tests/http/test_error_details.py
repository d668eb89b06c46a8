"""Only operators see the details of an error (S24), with the server inside this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Inbox
from ackbox.errors import LedgerCorrupt
from ackbox.stores.sqlite.read.reader import SqliteReader
from ackbox.stores.sqlite.store import SqliteStore
from support.http.posting import UNKNOWN_ID, posted

TOKEN = "twelve-boxers-hunt-victor"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
GENERAL = "The ledger is unavailable; the server's log has the reason. Try again later."


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    inbox = Inbox({"db_path": tmp_path / "inbox.db", "api_token": TOKEN})
    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/", inbox.asgi())
    with TestClient(app) as client:
        yield client


# S24
def test_a_damaged_ledger_is_described_to_operators_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(*_: object) -> None:
        raise LedgerCorrupt("Page 7 is damaged.")

    monkeypatch.setattr(SqliteReader, "event", damaged)
    path = f"/webhooks/{UNKNOWN_ID}"

    assert client.get(path).json()["detail"] == GENERAL
    assert client.get(path, headers=OPERATOR).json()["detail"] == "Page 7 is damaged."


# S24
def test_a_sender_sees_why_events_are_refused_unless_the_reason_names_the_ledger(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unavailable_reason, detail in (
        ("The disk is full.", "The disk is full."),
        (f"{tmp_path / 'inbox.db'} cannot be opened.", GENERAL),
    ):
        monkeypatch.setattr(SqliteStore, "unavailable_reason", unavailable_reason)
        response = client.post("/webhooks", content=posted())
        assert (response.status_code, response.json()["detail"]) == (503, detail)
