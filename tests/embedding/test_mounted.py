"""An inbox mounted in another app: `FastAPI(lifespan=inbox.lifespan)` and `app.mount(...)`."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from ackbox import Event, Inbox
from ackbox.errors import LedgerInUse, StartupError, Stopped
from ackbox.http.requests import Asgi, Receive, Scope, Send
from ackbox.stores.sqlite.lock import Holder, find_holder
from support.http.posting import UNKNOWN_ID
from support.servers.processes import HOLDS_THE_LEDGER, process
from support.time.polling import eventually

TOKEN = "twelve-boxers-hunt-victor"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
EVENT = {"idempotency_key": "order-1", "event_type": "order.paid", "payload": {"total": 42}}
OPERATING = ["/metrics", f"/api/events/{UNKNOWN_ID}", "/api/stats", "/openapi.json", "/nothing"]
Host = Callable[[Inbox, str], Any]


def fastapi(inbox: Inbox, prefix: str) -> FastAPI:
    own = (
        None if prefix == "/" else "/openapi.json"
    )  # at the root the host's document would hide ours
    app = FastAPI(lifespan=inbox.lifespan, openapi_url=own)
    app.mount(prefix, inbox.asgi())
    return app


def starlette(inbox: Inbox, prefix: str) -> Starlette:
    return Starlette(lifespan=inbox.lifespan, routes=[Mount(prefix, inbox.asgi())])


def behind_a_proxy(inbox: Inbox, prefix: str) -> Asgi:
    """A proxy that removes its own prefix, with the app configured for that prefix."""
    app = fastapi(inbox, prefix)

    async def with_root_path(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/proxied"}, receive, send)

    return with_root_path


def local_client(app: Any, prefix: str = "") -> TestClient:
    """Return a client whose requests look as if they came from the same machine."""
    return TestClient(app, f"http://localhost{prefix}", client=("127.0.0.1", 50_000))


@pytest.mark.parametrize("prefix", ["/inbox", "/in/box", "/"])
@pytest.mark.parametrize("host", [fastapi, starlette, behind_a_proxy])
def test_every_route_works_below_the_prefix(
    settings: dict[str, Any], host: Host, prefix: str
) -> None:
    inbox = Inbox(settings)
    with local_client(host(inbox, prefix), prefix.rstrip("/")) as client:
        accepted = client.post("/webhooks", json=EVENT)
        assert accepted.status_code == 202
        assert client.post("/webhooks/batch", content="{}").status_code == 200
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/ready").json() == {"ready": True}
        status = client.get(f"/webhooks/{accepted.json()['id']}", headers=OPERATOR)
        assert status.json()["idempotency_key"] == "order-1"
        assert client.get("/webhooks/nothing/here", headers=OPERATOR).status_code == 404
        assert "ackbox_" in client.get("/metrics", headers=OPERATOR).text
        document = client.get("/openapi.json", headers=OPERATOR).json()
        assert "/webhooks" in document["paths"]


def test_the_host_keeps_its_own_routes_and_openapi_document(settings: dict[str, Any]) -> None:
    app = fastapi(Inbox(settings), "/inbox")

    @app.get("/orders")
    async def orders() -> list[str]:
        return ["one"]

    with local_client(app) as client:
        assert client.get("/orders").json() == ["one"]
        assert list(client.get("/openapi.json").json()["paths"]) == ["/orders"]


def test_events_are_handled_inside_the_host(settings: dict[str, Any]) -> None:
    inbox, seen = Inbox(settings), []

    @inbox.on("order.*")
    async def note(event: Event) -> None:
        seen.append(event.json())

    with local_client(fastapi(inbox, "/inbox"), "/inbox") as client:
        client.post("/webhooks", json=EVENT)
        assert eventually(lambda: seen) == [{"total": 42}]


@pytest.mark.parametrize("prefix", ["/inbox", "/"])
@pytest.mark.parametrize("token", [TOKEN, None])
def test_a_mounted_inbox_needs_the_operator_token_too(
    settings: dict[str, Any], prefix: str, token: str | None
) -> None:
    overrides = settings if token else {**settings, "api_token": None}
    with local_client(fastapi(Inbox(overrides), prefix), prefix.rstrip("/")) as client:
        for path in OPERATING:
            refused = client.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "API_TOKEN" in refused.json()["detail"]
        assert client.post("/webhooks", json=EVENT).status_code == 202
        assert client.get("/webhooks?idempotency_key=order-1").status_code == 200
        assert client.get("/health").status_code == client.get("/ready").status_code == 200
        operator = token or overrides["db_path"].with_name("inbox.db.token").read_text().strip()
        allowed = client.get("/api/stats", headers={"Authorization": f"Bearer {operator}"})
        assert allowed.status_code == 200


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch", "/health", "/ready", "/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_lifespan_every_route_names_what_is_missing(
    settings: dict[str, Any], method: str, path: str
) -> None:
    app = FastAPI()
    app.mount("/inbox", Inbox(settings).asgi())
    with TestClient(app) as client:
        response = client.request(method, f"/inbox{path}", headers={"X-Request-ID": "mine"})
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"] == response.json()["request_id"] == "mine"
    assert int(response.headers["retry-after"]) > 0
    assert "inbox.lifespan" in response.json()["detail"]


def test_without_the_lifespan_a_response_has_a_new_request_id(
    settings: dict[str, Any],
) -> None:
    client = TestClient(Inbox(settings).asgi())
    assert len(client.get("/health").headers["x-request-id"]) == 16


def test_after_the_lifespan_every_route_says_that_it_is_stopped(settings: dict[str, Any]) -> None:
    app = fastapi(Inbox(settings), "/inbox")
    client = local_client(app, "/inbox")
    with client:
        assert client.post("/webhooks", json=EVENT).status_code == 202
    late = client.post("/webhooks", json=EVENT)
    assert late.status_code == 503
    assert "stopped" in late.json()["detail"]
    assert client.get("/ready").status_code == 503


def test_the_same_inbox_starts_again_after_it_stopped(settings: dict[str, Any]) -> None:
    app = fastapi(Inbox(settings), "/inbox")
    for expected in (202, 200, 200):
        with local_client(app, "/inbox") as client:
            assert client.post("/webhooks", json=EVENT).status_code == expected


async def test_an_inbox_that_runs_is_not_started_twice(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    async with inbox.lifespan(None):
        with pytest.raises(StartupError, match="already running"):
            async with inbox.lifespan(None):
                pass
        assert await inbox.read("SELECT 1 AS one") == [{"one": 1}]


async def test_two_inboxes_on_one_file_are_refused_in_one_line(settings: dict[str, Any]) -> None:
    async with Inbox(settings).lifespan(None):
        with pytest.raises(LedgerInUse, match="in use by process") as refused:
            async with Inbox(settings).lifespan(None):
                pass
    assert "\n" not in str(refused.value)


async def test_a_second_process_is_refused_in_one_line(settings: dict[str, Any]) -> None:
    with process(HOLDS_THE_LEDGER, settings["db_path"]) as first:
        inbox = Inbox(settings)
        with pytest.raises(LedgerInUse, match=f"process {first.pid}") as refused:
            async with inbox.lifespan(None):
                pass
    assert "\n" not in str(refused.value)


async def test_after_a_refused_start_the_inbox_can_be_started(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    async with Inbox(settings).lifespan(None):
        with pytest.raises(LedgerInUse):
            async with inbox.lifespan(None):
                pass
    async with inbox.lifespan(None):
        assert await inbox.read("SELECT 1 AS one") == [{"one": 1}]


async def test_a_cancelled_host_still_releases_the_ledger(settings: dict[str, Any]) -> None:
    async def host() -> None:
        async with Inbox(settings).lifespan(None):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    running = asyncio.create_task(host())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with Inbox(settings).lifespan(None):
        pass


async def test_the_lifespan_can_be_nested_in_the_hosts_own(settings: dict[str, Any]) -> None:
    inbox, order = Inbox(settings), []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, int]]:
        order.append("host up")
        async with inbox.lifespan(app):
            yield {"shared": 1}
        order.append("host down")

    app = FastAPI(lifespan=lifespan)
    app.mount("/inbox", inbox.asgi())
    with local_client(app, "/inbox") as client:
        assert client.post("/webhooks", json=EVENT).status_code == 202
    assert order == ["host up", "host down"]


def test_commands_on_this_machine_learn_the_url_of_the_inbox(settings: dict[str, Any]) -> None:
    app = behind_a_proxy(Inbox(settings), "/inbox")
    with TestClient(app, "http://127.0.0.1:8123/inbox") as client:
        file = settings["db_path"].stat()
        ledger = (file.st_dev, file.st_ino)
        assert find_holder(settings["db_path"]) == Holder(os.getpid(), None, ledger=ledger)
        client.get("/health")
        assert find_holder(settings["db_path"]) == Holder(
            os.getpid(),
            "http://127.0.0.1:8123/inbox",
            workers=10,
            ledger=ledger,
        )


async def test_a_websocket_is_closed(settings: dict[str, Any]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await Inbox(settings).asgi()({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1013}]


async def test_reading_before_the_start_says_what_is_missing(settings: dict[str, Any]) -> None:
    with pytest.raises(Stopped, match=r"inbox\.lifespan"):
        await Inbox(settings).read("SELECT 1")


def test_a_host_name_is_not_advertised_because_commands_would_send_it_their_token(
    settings: dict[str, Any],
) -> None:  # S5
    with TestClient(fastapi(Inbox(settings), "/inbox"), "http://testserver/inbox") as client:
        assert client.get("/health").status_code == 200
        file = settings["db_path"].stat()
        holder = Holder(os.getpid(), None, ledger=(file.st_dev, file.st_ino))
        assert find_holder(settings["db_path"]) == holder
