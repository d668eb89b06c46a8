"""A source that code declares: its deliveries reach the handler, also inside another app."""

from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Event, Inbox
from ackbox.errors import SettingError
from ackbox.model import ReceiptKind
from ackbox.testing import InboxHarness
from support.http.deliveries import GITHUB_KEY, signed_by_github
from support.time.polling import eventually

TOKEN = "token-of-our-service"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("GITHUB_KEY", GITHUB_KEY)
    monkeypatch.setenv("OUR_TOKEN", TOKEN)
    inbox = Inbox({"db_path": tmp_path / "inbox.db"})
    inbox.source("github", preset="github", secret="env:GITHUB_KEY")
    inbox.source("ours", preset="bearer", secret="env:OUR_TOKEN", key="/Sid", type="/Kind")
    return inbox


def test_a_delivery_reaches_the_handler_with_its_headers_and_its_form(inbox: Inbox) -> None:
    seen: dict[str, Event] = {}

    @inbox.on("*")
    async def note(event: Event) -> None:
        seen[event.source] = event

    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/inbox", inbox.asgi())
    with TestClient(app, "http://localhost") as client:
        headers = signed_by_github(b'{"ref": 1}', "delivery-1")
        pushed = client.post("/inbox/in/github", content=b'{"ref": 1}', headers=headers)
        sent = client.post("/inbox/in/ours", content=b"Sid=s1&Kind=sms&To=%2B1", headers=FORM)
        assert (pushed.status_code, sent.status_code) == (202, 202)
        eventually(lambda: len(seen) == 2)
        assert client.post("/inbox/in/none").status_code == 404
        assert client.post("/inbox/webhooks", json={}).status_code == 401
    assert seen["github"].headers["x-github-delivery"] == "delivery-1"
    assert (seen["ours"].idempotency_key, seen["ours"].event_type) == ("s1", "sms")
    assert seen["ours"].form()["To"] == "+1"
    assert "authorization" not in seen["ours"].headers


def test_a_wrong_word_in_code_names_the_call(inbox: Inbox) -> None:
    with pytest.raises(SettingError, match=r"inbox.source\('shop'\): preset = \"shopfy\" is not"):
        inbox.source("shop", preset="shopfy", secret="env:X")
    with pytest.raises(SettingError, match=r"inbox.source\('github'\) is declared twice"):
        inbox.source("github", preset="github", secret="env:X")
    with pytest.raises(SettingError, match="takes a name as text, not 3"):
        inbox.source(3, preset="github", secret="env:X")  # type: ignore[arg-type]


async def test_a_missing_secret_stops_the_start_but_not_a_test(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of handlers needs no secrets: nothing is received over HTTP there."""
    monkeypatch.delenv("GITHUB_KEY")
    async with InboxHarness(inbox) as box:
        receipt = await box.post("push", {}, source="github")
        assert receipt.kind is ReceiptKind.NEW
    with pytest.raises(SettingError, match="GITHUB_KEY is not set in the environment"):
        async with inbox.lifespan(None):
            raise AssertionError
