"""Access control: who may send, read and operate (S5)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from ackbox.http.guard import authorized
from ackbox.ports import Store
from ackbox.stores.sqlite.token import find_flaw
from support.http.posting import UNKNOWN_ID, new_key, posted
from support.http.problems import assert_problem
from support.http.wire import Response, exchange, request
from support.ledgers.events import envelope, record_in
from support.ledgers.seeding import seed
from support.servers.server import Server, running

INGEST, API, READ = (
    "correct-horse-battery-staple",
    "twelve-boxers-hunt-victor",
    "only-looking-around-here",
)
LOOK_UPS = [f"/webhooks/{UNKNOWN_ID}", "/webhooks?idempotency_key=k"]
READABLE = ["/metrics", "/api/events", "/api/stats", "/api/audit", f"/api/events/{UNKNOWN_ID}"]
OPERATING = [*READABLE, "/openapi.json", "/nothing", "/", "/api", "/%ff", "/metrics/", "/API/stats"]
OPEN = ["/health", "/ready"]
CHALLENGE = {"www-authenticate": "Bearer"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"INGEST_TOKEN": INGEST, "API_TOKEN": API, "READ_TOKEN": READ}
    with running(tmp_path_factory.mktemp("closed"), settings) as server:
        yield server


def get(server: Server, path: str, token: str | None = None, **headers: str) -> Response:
    """Get the path with the given token, or without any."""
    authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
    return exchange(server.port, request("GET", path, headers={**authorization, **headers}))


def post(server: Server, path: str, authorization: str | None, key: str | None = None) -> Response:
    headers = {} if authorization is None else {"Authorization": authorization}
    return exchange(server.port, request("POST", path, posted(key), headers))


MISSING = [None, "", "Bearer", "Bearer ", f"Basic {INGEST}", f"Token {INGEST}", INGEST,
           f"Bearer{INGEST}", f"Basic Og==, Bearer {INGEST}"]  # fmt: skip
WRONG = ["Bearer wrong", f"Bearer {INGEST[:-1]}", f"Bearer {INGEST}x", f"Bearer {INGEST} x",
         f'Bearer "{INGEST}"', f"Bearer {INGEST.upper()}", "Bearer \u00e9\u4e2d\U0001f600",
         f"Bearer {API}", f"Bearer {READ}", f"Bearer Bearer {INGEST}",
         "Bearer " + "x" * 10_000]  # fmt: skip


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch"])
@pytest.mark.parametrize("authorization", [*MISSING, *WRONG])
def test_without_the_ingest_token_no_event_is_accepted(
    closed: Server, authorization: str | None, path: str
) -> None:  # F48
    key = new_key()

    response = post(closed, path, authorization, key)

    detail = assert_problem(response, 401, **CHALLENGE)
    assert "INGEST_TOKEN" in detail
    assert detail.startswith("The token is wrong.") == (authorization in WRONG)  # N15
    assert post(closed, "/webhooks", f"Bearer {INGEST}", key).status == 202


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
def test_with_the_ingest_token_events_are_accepted(closed: Server, scheme: str) -> None:
    assert post(closed, "/webhooks", scheme + INGEST).status == 202
    assert post(closed, "/webhooks/batch", scheme + INGEST).status == 200


def test_the_token_is_checked_before_the_body(closed: Server) -> None:
    for headers in ({"Content-Length": "999999999"}, {"Content-Encoding": "gzip"}):
        response = exchange(closed.port, request("POST", "/webhooks", b"", headers))
        assert_problem(response, 401)


def test_two_different_tokens_match_nothing(closed: Server) -> None:
    assert_problem(post(closed, "/webhooks", f"Bearer {INGEST}\r\nAuthorization: Bearer x"), 400)
    for token in (f"{API}\r\nAuthorization: Bearer x", f"x\r\nAuthorization: Bearer {API}"):
        assert_problem(get(closed, "/metrics", token), 401)


# S5
@pytest.mark.parametrize("path", OPERATING)
def test_without_the_operator_token_every_route_is_401(closed: Server, path: str) -> None:
    detail = assert_problem(get(closed, path), 401, **CHALLENGE)
    assert "API_TOKEN" in detail
    assert not detail.startswith("The token is wrong.")
    for token in (INGEST, "wrong", API[:-1]):
        detail = assert_problem(get(closed, path, token), 401, **CHALLENGE)
        assert detail.startswith("The token is wrong.")  # N15
    assert_problem(closed.get(path, {"Authorization": f"Basic {API}"}), 401)


def test_the_operator_token_opens_every_route_from_anywhere(closed: Server) -> None:
    elsewhere = {"Host": "inbox.example.com", "X-Forwarded-For": "1.2.3.4"}

    statuses = [get(closed, path, API, **elsewhere).status for path in OPERATING]

    assert statuses == [200, 200, 200, 200, 404, 200, 404, 404, 404, 400, 404, 404]


# S5
LOCAL = [{}, {"Host": "127.0.0.1"}, {"Host": "localhost:8000"}, {"Host": "[::1]"},
         {"X-Forwarded-For": "127.0.0.1"}, {"Origin": "http://localhost"}]  # fmt: skip


@pytest.mark.parametrize("headers", LOCAL, ids=str)
def test_a_request_that_looks_local_needs_the_token_too(
    server: Server, headers: dict[str, str]
) -> None:
    """A default `proxy_pass`, stunnel or `ssh -R` makes the whole world look local."""
    for path in OPERATING:
        assert_problem(get(server, path, **headers), 401, **CHALLENGE)


# S5
def test_the_first_start_creates_a_token_for_its_owner_alone(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        file = tmp_path / "events.db.token"
        assert file.stat().st_mode & 0o777 == 0o600
        assert len(server.token) >= 43
        assert get(server, "/api/stats", server.token).status == 200
        created = [line for line in server.records() if line["event"] == "operator token created"]
        assert len(created) == 1
        assert server.token not in server.log
        before = server.token
        server.stop()
        server.restart()
        assert server.token == before
        assert get(server, "/api/stats", before).status == 200


# S5
def test_with_api_token_set_no_token_file_is_created(closed: Server) -> None:
    assert not (closed.folder / "events.db.token").exists()


def test_an_empty_token_file_is_filled_at_the_next_start(tmp_path: Path) -> None:
    """The process of an earlier start died between creating the file and writing it."""
    (tmp_path / "events.db.token").touch(mode=0o600)
    with running(tmp_path) as server:
        assert get(server, "/api/stats", server.token).status == 200


# S5
def test_a_token_file_that_others_could_read_fails_the_start(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.write_text("a-token-somebody-else-knows\n")
    secret.chmod(0o600)
    file = tmp_path / "events.db.token"

    def link() -> None:
        file.symlink_to(secret)

    def hard_link() -> None:
        os.link(secret, file)

    def readable() -> None:
        file.write_text("a-token-somebody-else-knows\n")
        file.chmod(0o640)

    def short() -> None:
        file.write_text("short\n")
        file.chmod(0o600)

    def pipe() -> None:
        os.mkfifo(file, 0o600)

    flaws = {link: "symbolic link", hard_link: "hard link", readable: "0640", short: "16 to 4096",
             pipe: "regular file"}  # fmt: skip
    for make, reason in flaws.items():
        make()
        server = Server(tmp_path)
        assert server.process.wait(20) == 1
        last = server.log.splitlines()[-1]
        assert reason in last
        assert "API_TOKEN" in last
        assert "somebody-else" not in server.log
        file.unlink()


# S5
def test_a_token_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """The check takes the allowed owners, so that this test does not need root."""
    file = tmp_path / "file"
    file.touch(mode=0o600)
    status = file.stat()
    assert find_flaw(status, {status.st_uid}) is None
    assert "another user" in str(find_flaw(status, {status.st_uid + 1}))


def test_read_token_may_read_and_not_operate(closed: Server) -> None:
    assert [get(closed, path, READ).status for path in READABLE] == [200, 200, 200, 200, 404]
    for path in ("/openapi.json", "/nothing"):
        assert "READ_TOKEN" in assert_problem(get(closed, path, READ), 403)
    for path in ("/api/events/replay", f"/api/events/{UNKNOWN_ID}/replay", "/api/backup"):
        response = post(closed, path, f"Bearer {READ}")
        assert "READ_TOKEN" in assert_problem(response, 403)
    for path in LOOK_UPS:
        assert_problem(get(closed, path, READ), 401)


def test_metrics_may_be_open_to_all(tmp_path: Path) -> None:
    with running(tmp_path, {"METRICS_ACCESS": "open"}) as server:
        assert get(server, "/metrics").status == 200
        assert_problem(exchange(server.port, request("POST", "/metrics", b"")), 401)
        assert_problem(get(server, "/api/stats"), 401)


@pytest.mark.parametrize("path", LOOK_UPS)
def test_a_look_up_is_for_senders(closed: Server, server: Server, path: str) -> None:
    assert "INGEST_TOKEN" in assert_problem(get(closed, path), 401, **CHALLENGE)
    assert "wrong" in assert_problem(get(closed, path, "wrong"), 401)
    for token in (INGEST, API):
        assert_problem(get(closed, path, token), 404)
    assert_problem(get(server, path), 404)  # this server has no INGEST_TOKEN


def test_a_look_up_finds_events_of_senders_only(tmp_path: Path) -> None:
    theirs, signed = envelope("theirs"), envelope("signed", source="stripe")

    async def fill(store: Store) -> None:
        await record_in(store, [theirs, signed])

    seed(tmp_path / "events.db", fill)
    with running(tmp_path) as server:
        for path in (f"/webhooks/{theirs.id}", "/webhooks?idempotency_key=theirs"):
            assert list(get(server, path).json()) == [
                *("id", "idempotency_key", "status", "created_at", "updated_at")
            ]
        for token in (None, server.token):
            assert_problem(get(server, f"/webhooks/{signed.id}", token), 404)
            assert_problem(get(server, "/webhooks?idempotency_key=signed", token), 404)
        for source in ("source=stripe", "%73ource=stripe", "source=webhooks"):
            path = f"/webhooks?idempotency_key=signed&{source}"
            assert_problem(get(server, path), 401, **CHALLENGE)
        path = "/webhooks?idempotency_key=signed&source=stripe"
        assert get(server, path, server.token).json()["id"] == signed.id


@pytest.mark.parametrize("path", OPEN)
def test_health_and_readiness_are_open_to_all(closed: Server, path: str) -> None:
    assert get(closed, path).status == 200
    assert get(closed, path, Host="example.com", Via="1.1 proxy").status == 200


def test_on_a_public_address_callers_without_a_token_may_only_send(tmp_path: Path) -> None:
    remote = {"Host": "inbox.example.com"}
    with running(tmp_path, {"HOST": "0.0.0.0"}) as server:
        assert server.post(posted(), remote).status == 202
        for path in OPEN:
            assert get(server, path, **remote).status == 200
        for path in OPERATING:
            assert_problem(get(server, path, **remote), 401)
        assert server.get("/metrics").status == 200


@pytest.mark.parametrize(
    "header", [None, b"", b"\xff\xfe", b"Bearer \xff", b"Bearer", b" ", b"\x00"]
)
def test_a_malformed_header_matches_no_token_and_raises_nothing(header: bytes | None) -> None:
    assert not authorized(header, SecretStr("right"))


def test_a_token_may_be_any_text() -> None:
    assert authorized("Bearer zwölf".encode(), SecretStr("zwölf"))
