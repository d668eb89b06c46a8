"""Refused requests: the log line, other origins, and unauthenticated callers (N15, S15, S24)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import Response, exchange, request
from support.servers.server import FAST_MONITOR, Server, running
from support.time.polling import eventually

INGEST, API = "correct-horse-battery-staple", "twelve-boxers-hunt-victor"
SENDER = {"Authorization": f"Bearer {INGEST}"}
SECRET = "hunter2-5f0e"
EVERY_LINE = {"set": {"ackbox.exporters.logs:RefusalLog": {"seconds": 0.0}}}


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"INGEST_TOKEN": INGEST, "API_TOKEN": API, "LOG_LEVEL": "WARNING"}
    with running(tmp_path_factory.mktemp("chatty"), settings, EVERY_LINE) as server:
        yield server


def refusals(server: Server) -> list[dict[str, Any]]:
    return [record for record in server.records() if record["event"] == "request refused"]


WRONG = {"Authorization": f"Bearer {SECRET}"}
JSON = {"Content-Type": "application/json"}
AN_EVENT_WITH = b'{"idempotency_key":"%s","%s":1}' % (SECRET.encode(), SECRET.encode())
REFUSED = {
    "no token": (request("POST", "/webhooks", posted()), 401, "Send INGEST_TOKEN"),
    "a wrong token": (request("POST", "/webhooks", posted(), WRONG), 401, "The token is wrong"),
    "a wrong operator": (request("GET", "/api/stats", headers=WRONG), 401, "The token is wrong"),
    "not JSON": (request("POST", "/webhooks", SECRET.encode(), SENDER), 400, "JSON object"),
    "an unknown field": (
        request("POST", "/webhooks", AN_EVENT_WITH, SENDER), 400, "unknown field"),
    "compressed": (
        request("POST", "/webhooks", posted(), {**SENDER, "Content-Encoding": SECRET}), 415,
        "Content-Encoding"),
    "too large": (
        request("POST", "/webhooks", headers={**SENDER, "Content-Length": "9999999"}), 413,
        "larger than"),
    "a bad query": (
        request("GET", f"/webhooks?idempotency_key={SECRET * 30}", headers=SENDER), 400,
        "The query is not valid: string_too_long"),
    "a bad replay": (
        request("POST", "/api/events/replay", b'{"%s":1}' % SECRET.encode(),
                {"Authorization": f"Bearer {API}", **JSON}), 400, "The body is not valid"),
    "a wrong method": (request("PUT", "/webhooks", b"", SENDER), 405, "accepts GET, POST only"),
    "not HTTP": (f"GET /{SECRET} HTTP/9.9\r\n\r\n".encode(), 400, "HTTP/1.1"),
}  # fmt: skip


# N15, F51
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_request_is_one_log_line_without_its_content(chatty: Server, name: str) -> None:
    data, status, reason = REFUSED[name]
    before = len(refusals(chatty))

    response = exchange(chatty.port, data)

    assert_problem(response, status)
    (line,) = eventually(lambda: refusals(chatty)[before:])
    assert line["level"] == "warning"
    assert (line["status"], line["peer"]) == (status, "127.0.0.1")
    assert reason in line["reason"]
    assert line["request_id"] == response.headers["x-request-id"]
    assert SECRET not in chatty.log


def test_ordinary_responses_are_not_logged(chatty: Server) -> None:
    before = len(refusals(chatty))

    assert exchange(chatty.port, request("POST", "/webhooks", posted(), SENDER)).status == 202
    missing = request("GET", "/webhooks?idempotency_key=nobody", headers=SENDER)
    assert exchange(chatty.port, missing).status == 404

    assert len(refusals(chatty)) == before


# N15
def test_a_flood_of_refusals_is_one_line_per_second(tmp_path: Path) -> None:
    with running(tmp_path, {"INGEST_TOKEN": INGEST}) as server:
        for _ in range(50):
            server.post(posted())
        first = refusals(server)
        eventually(lambda: server.post(posted()).status == 401 and len(refusals(server)) > 1)
        lines = refusals(server)
    assert len(first) <= 5  # the 50 requests took a second or two
    assert lines[0]["suppressed"] == 0
    assert sum(line["suppressed"] for line in lines) + len(lines) >= 50


FOREIGN = ["https://example.com", "null", "http://localhost:1", "http://127.0.0.1", "localhost", "",
           "http://localhost.example.com", "http://localhost, http://example.com"]  # fmt: skip


# S15
@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/batch", "/api/events/replay"])
def test_a_page_of_another_origin_may_send_nothing(server: Server, origin: str, path: str) -> None:
    response = send_from(server, path, origin)

    assert "Origin" in assert_problem(response, 403)


# S15
def test_a_page_of_the_same_origin_may_send(server: Server) -> None:
    assert send_from(server, "/webhooks", "http://localhost:8000").status == 202
    assert send_from(server, "/webhooks/batch", "https://localhost:8000").status == 200


# S24
def test_operators_get_the_detail_and_others_a_general_reason(tmp_path: Path) -> None:
    with running(tmp_path, {"API_TOKEN": API}, {"set": FAST_MONITOR}) as server:
        server.ledger.rename(tmp_path / "elsewhere.db")
        eventually(lambda: not server.is_ready())

        general = assert_problem(server.get("/ready"), 503)
        detailed = assert_problem(server.get("/ready", server.operator), 503)
        assert general == "Events cannot be stored."
        assert "ledger was moved" in detailed
        assert str(tmp_path) not in general + assert_problem(server.post(posted()), 503)


def send_from(server: Server, path: str, origin: str) -> Response:
    """Post as a browser does for a page of that origin."""
    headers = {"Origin": origin, "Host": "localhost:8000", **server.operator, **JSON}
    return exchange(server.port, request("POST", path, posted(), headers))
