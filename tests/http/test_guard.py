"""Who may send, and who may read and operate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from ackbox.http.guard import authorized, check_operator
from ackbox.http.problems import HttpError
from support.posting import NOBODYS_ID, new_key, posted
from support.problems import assert_problem
from support.server import Server, running
from support.wire import Answer, exchange, request

INGEST, API = "correct-horse-battery-staple", "twelve-boxers-hunt-victor"
OPERATING = ["/metrics", f"/webhooks/{NOBODYS_ID}", "/webhooks?idempotency_key=k", "/openapi.json",
             "/nothing", "/webhooks/not-an-id", "/webhooks", "/%ff"]  # fmt: skip
OPEN = ["/health", "/ready"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"INGEST_TOKEN": INGEST, "API_TOKEN": API}
    with running(tmp_path_factory.mktemp("closed"), settings) as server:
        yield server


def post(server: Server, path: str, authorization: str | None, key: str | None = None) -> Answer:
    headers = {} if authorization is None else {"Authorization": authorization}
    return exchange(server.port, request("POST", path, posted(key), headers))


WRONG = [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {INGEST[:-1]}",
         f"Bearer {INGEST}x",
         f"Basic {INGEST}", f"Token {INGEST}", INGEST, f"Bearer{INGEST}", f"Bearer {INGEST} x",
         f'Bearer "{INGEST}"', f"Bearer {INGEST.upper()}", "Bearer \u00e9\u4e2d\U0001f600",
         f"Bearer {API}", f"Bearer Bearer {INGEST}", "Bearer " + "x" * 10_000,
         f"Basic Og==, Bearer {INGEST}"]  # fmt: skip


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch"])
@pytest.mark.parametrize("given", WRONG)
def test_without_the_ingest_token_nothing_is_taken(
    closed: Server, given: str | None, path: str
) -> None:  # F48
    key = new_key()

    answer = post(closed, path, given, key)

    assert "INGEST_TOKEN" in assert_problem(answer, 401, **{"www-authenticate": "Bearer"})
    assert post(closed, "/webhooks", f"Bearer {INGEST}", key).status == 202


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
def test_with_the_ingest_token_events_are_taken(closed: Server, scheme: str) -> None:
    assert post(closed, "/webhooks", scheme + INGEST).status == 202
    assert post(closed, "/webhooks/batch", scheme + INGEST).status == 200


def test_a_token_is_asked_for_before_a_body_is_looked_at(closed: Server) -> None:
    for headers in ({"Content-Length": "999999999"}, {"Content-Encoding": "gzip"}):
        answer = exchange(closed.port, request("POST", "/webhooks", b"", headers))
        assert_problem(answer, 401)


def test_two_tokens_are_none(closed: Server) -> None:
    twice = f"Bearer {INGEST}\r\nAuthorization: Bearer other"

    assert_problem(post(closed, "/webhooks", twice), 400, 401)
    assert_problem(closed.get("/metrics", {"Authorization": twice}), 401)


@pytest.mark.parametrize("path", OPERATING)
def test_without_the_api_token_nothing_is_told_not_even_at_home(closed: Server, path: str) -> None:
    for given in (None, f"Bearer {INGEST}", "Bearer wrong", f"Basic {API}"):
        headers = {} if given is None else {"Authorization": given}
        answer = closed.get(path, headers)
        assert "API_TOKEN" in assert_problem(answer, 401, **{"www-authenticate": "Bearer"})


def test_with_the_api_token_everything_is_told_from_anywhere(closed: Server) -> None:
    headers = {
        "Authorization": f"Bearer {API}",
        "Host": "inbox.example.com",
        "X-Forwarded-For": "1.2.3.4",
    }

    statuses = [closed.get(path, headers).status for path in OPERATING]

    assert statuses == [200, 404, 404, 200, 404, 400, 400, 400]


@pytest.mark.parametrize("path", OPEN)
def test_health_and_readiness_are_open_to_all(closed: Server, path: str) -> None:
    assert closed.get(path).status == 200
    assert closed.get(path, {"Host": "example.com", "Via": "1.1 proxy"}).status == 200


LOOPBACK_HOSTS = ["localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:80", "127.9.9.9", "[::1]",
                  "[::1]:8000", "localhost:"]  # fmt: skip
FOREIGN_HOSTS = ["example.com", "", "localhost.example.com", "127.0.0.1.example.com", "0.0.0.0",
                 "10.0.0.1", "[::2]", "127.1", "2130706433"]  # fmt: skip
FORWARDED = [
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Forwarded-Host": "localhost"},
    {"X-Forwarded-Proto": "http"},
    {"X-Forwarded-Port": "80"},
    {"X-Forwarded-Server": "a"},
    {"X-Real-IP": "127.0.0.1"},
    {"X-Client-IP": "127.0.0.1"},
    {"True-Client-IP": "127.0.0.1"},
    {"X-Original-Forwarded-For": "127.0.0.1"},
    {"Forwarded": "for=127.0.0.1"},
    {"Via": "1.1 proxy"},
    {"VIA": ""},
]


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_at_home_reading_needs_no_token(server: Server, host: str) -> None:
    assert server.get("/metrics", {"Host": host}).status == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_name_is_not_home(server: Server, host: str) -> None:
    """A page that rebinds its name to loopback still sends that name."""
    for path in OPERATING:
        assert_problem(server.get(path, {"Host": host}), 401, **{"www-authenticate": "Bearer"})


@pytest.mark.parametrize("headers", FORWARDED, ids=str)
def test_behind_a_proxy_is_not_home(server: Server, headers: dict[str, str]) -> None:
    for path in OPERATING:
        assert_problem(server.get(path, headers), 401)
    for path in OPEN:
        assert server.get(path, headers).status == 200
    assert server.post(posted(), headers).status == 202


@pytest.mark.parametrize(
    "origin",
    ["https://example.com", "null", "http://localhost:1", "http://127.0.0.1", "localhost", "",
     "http://localhost.example.com", "http://localhost, http://example.com"],
)  # fmt: skip
def test_a_foreign_page_cannot_order_a_backup(server: Server, tmp_path: Path, origin: str) -> None:
    target = tmp_path / "copy.db"

    answer = order_backup(server, target, {"Origin": origin, "Host": "localhost:8000"})

    assert_problem(answer, 401)
    assert not target.exists()


def test_who_is_at_home_can_order_a_backup(server: Server, tmp_path: Path) -> None:
    for name, headers in {
        "a.db": {},
        "b.db": {"Origin": "http://localhost:8000", "Host": "localhost:8000"},
    }.items():
        answer = order_backup(server, tmp_path / name, headers)
        assert answer.status == 200
        assert answer.lines()[-1] == {"done": True}
        assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b"null", b"{}", b'{"path":1}', b'{"path":""}', b'{"path":"x.db"}',
     b'{"path":"/tmp/\\u0000"}', b'{"path":"/' + b"x" * 5000 + b'"}', b'{"path":"\\ud800"}',
     b'{"path":"/\\ud800"}', b"\xff", b"[" * 100_000, b'{"path":"/","more":1}'],
)  # fmt: skip
def test_a_bad_order_for_a_backup_is_400(server: Server, body: bytes) -> None:
    data = request("POST", "/api/backup", body, {"Content-Type": "application/json"})

    assert_problem(exchange(server.port, data), 400)


def test_an_order_that_cannot_be_met_says_so(server: Server, tmp_path: Path) -> None:
    (tmp_path / "there.db").write_text("precious")

    for target in (tmp_path / "there.db", tmp_path / "no" / "folder.db"):
        answer = order_backup(server, target, {})
        assert answer.status == 200
        assert "error" in answer.lines()[-1]
    assert (tmp_path / "there.db").read_text() == "precious"


def test_a_public_bind_starts_and_strangers_by_name_may_only_send(tmp_path: Path) -> None:
    stranger = {"Host": "inbox.example.com"}
    with running(tmp_path, {"HOST": "0.0.0.0"}) as server:
        assert server.post(posted(), stranger).status == 202
        for path in OPEN:
            assert server.get(path, stranger).status == 200
        for path in OPERATING:
            assert_problem(server.get(path, stranger), 401)
        assert server.get("/metrics").status == 200


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_a_loopback_peer_is_home(peer: str) -> None:
    check_operator(scope(client=(peer, 1)), None)


@pytest.mark.parametrize(
    "change",
    [
        {"client": ("192.0.2.1", 1)},
        {"client": ("::ffff:192.0.2.1", 1)},
        {"client": ("fe80::1%eth0", 1)},
        {"client": ("", 1)},
        {"client": None},
        {"root_path": "/inbox"},
        {"headers": []},
        {"headers": [(b"host", b"\xff")]},
        {"headers": [(b"host", b"localhost"), (b"host", b"example.com")]},
        {"headers": [(b"host", b"localhost"), (b"origin", b"http://example.com")], "method": "PUT"},
    ],
    ids=str,
)
def test_everybody_else_is_not_home(change: dict[str, Any]) -> None:
    with pytest.raises(HttpError, match="API_TOKEN"):
        check_operator(scope(**change), None)


@pytest.mark.parametrize(
    "header", [None, b"", b"\xff\xfe", b"Bearer \xff", b"Bearer", b" ", b"\x00"]
)
def test_a_strange_header_is_no_token_and_no_error(header: bytes | None) -> None:
    assert not authorized(header, SecretStr("right"))


def test_a_token_may_hold_any_text() -> None:
    assert authorized("Bearer zwölf".encode(), SecretStr("zwölf"))


def order_backup(server: Server, target: Path, headers: dict[str, str]) -> Answer:
    body = b'{"path":"%s"}' % str(target).encode()
    named = {"Content-Type": "application/json", **headers}
    return exchange(server.port, request("POST", "/api/backup", body, named))


def scope(**change: Any) -> dict[str, Any]:
    return {
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost")],
        "method": "GET",
        "root_path": "",
        **change,
    }
