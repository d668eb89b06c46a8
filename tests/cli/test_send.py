"""`ackbox send`."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ackbox.cli import client
from ackbox.cli.send import post_event
from ackbox.errors import CommandFailed
from support.http.posting import new_key
from support.servers.cli import Cli, run
from support.servers.server import Server, running

TOKEN = "a-token-of-twenty-characters"


@contextmanager
def responding(response: bytes | None, received: list[bytes] | None = None) -> Iterator[str]:
    """A server that sends `response` to its first client, or nothing if that is None."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(65536)
                if received is not None:
                    received.append(request)
                if response is not None:
                    connection.sendall(response)
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # until the client closes the connection
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def test_the_receipt_says_new_then_duplicate_then_conflict(cli: Cli, server: Server) -> None:
    receipts = [
        cli("send", "order.paid", "--key", "k-1", "--payload", payload, DB_PATH=str(server.ledger))
        for payload in ('{"n": 1}', '{"n": 1}', '{"n": 2}')
    ]
    words = [done.out.split() for done in receipts]
    assert [word[0] for word in words] == ["new", "duplicate", "conflict"]
    assert len({word[2] for word in words}) == 1
    assert server.row(words[0][2], "event_type", "idempotency_key") == ("order.paid", "k-1")
    assert server.payload(words[0][2]) == b'{"n": 1}'


def test_a_key_is_made_when_none_is_given(cli: Cli, server: Server) -> None:
    done = cli("send", "--count", "3", "--lane", "l", DB_PATH=str(server.ledger))
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[0] for line in lines] == ["new"] * 3
    assert [server.row(line[2], "event_type", "lane") for line in lines] == [("webhook", "l")] * 3


def test_the_payload_arrives_byte_for_byte(server: Server, tmp_path: Path) -> None:
    odd = b' {"b":1.00,  "a":"\xc3\xa9",\n"b":123456789012345678901234567890}\n'
    (tmp_path / "payload.json").write_bytes(odd)
    db = str(server.ledger)
    from_file = run("send", "--file", "payload.json", folder=tmp_path, DB_PATH=db)
    from_stdin = run("send", "--file", "-", folder=tmp_path, DB_PATH=db, stdin=odd)
    for done in (from_file, from_stdin):
        assert server.payload(done.out.split()[2]) == odd.strip()


def test_a_server_elsewhere_is_named_by_url(cli: Cli, server: Server) -> None:
    for url in (f"http://localhost:{server.port}/", f"http://127.0.0.1:{server.port}/webhooks"):
        assert cli("send", "--url", url).out.startswith("new")


def test_proxies_of_the_environment_are_ignored(cli: Cli, server: Server) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    done = cli("send", DB_PATH=str(server.ledger), HTTP_PROXY=proxy, ALL_PROXY=proxy)
    assert done.out.startswith("new")


def test_the_ingest_token_is_sent_when_set(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server", {"INGEST_TOKEN": TOKEN}) as server:
        db = str(server.ledger)
        assert cli("send", DB_PATH=db, INGEST_TOKEN=TOKEN).out.startswith("new")
        assert "401 Unauthorized: Send INGEST_TOKEN" in cli("send", DB_PATH=db).line


# S5
@pytest.mark.parametrize("given", [{}, {"API_TOKEN": TOKEN}])
def test_no_operator_token_is_sent_to_a_url_that_was_named(
    cli: Cli, tmp_path: Path, given: dict[str, str]
) -> None:
    with running(tmp_path / "server") as server:
        received: list[bytes] = []
        with responding(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", received) as url:
            cli("send", "--url", url, DB_PATH=str(server.ledger), **given)
        assert received[0].startswith(b"POST /webhooks ")
        assert b"authorization" not in received[0].lower()
        assert server.token.encode() not in received[0]


def test_a_refusal_shows_the_detail_of_the_problem(cli: Cli, server: Server) -> None:
    deep = "[" * 600 + "]" * 600
    done = cli("send", "--payload", deep, DB_PATH=str(server.ledger))
    assert "400 Bad Request: the payload must not be nested deeper" in done.line


def test_a_server_that_is_not_there_is_one_line_that_says_how_to_start_it(cli: Cli) -> None:
    port = free_port()
    line = cli("send", PORT=port).line
    assert f"http://127.0.0.1:{port}" in line
    assert "`ackbox serve`" in line


def test_the_lock_file_of_a_killed_server_is_ignored(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.kill()
        port = free_port()
        assert f"http://127.0.0.1:{port}" in cli("send", DB_PATH=str(server.ledger), PORT=port).line


@pytest.mark.parametrize(
    ("listening", "reached"),
    [
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://[::]:8000", "http://[::1]:8000"),
        ("http://192.168.1.5:80", "http://192.168.1.5:80"),
    ],
)
def test_a_server_on_every_address_is_reached_at_loopback(listening: str, reached: str) -> None:
    assert client.reachable(listening) == reached


def test_a_server_that_never_responds_times_out() -> None:
    with (
        responding(None) as url,
        client.open_client(None, timeout=0.1) as impatient,
        pytest.raises(CommandFailed, match="did not respond in time"),
    ):
        post_event(impatient, url, b"{}")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
            "Found: This is not a response",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "200 OK: This is not a response"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n", "302 Found"),
        (b"", "The connection to"),
    ],
)
def test_a_server_that_is_not_ackbox_is_recognized(
    cli: Cli, response: bytes, expected: str
) -> None:
    with responding(response) as url:
        assert expected in cli("send", "--url", url).line


# F49
def test_a_response_cannot_control_the_terminal(cli: Cli) -> None:
    body = b'{"detail": "\\u001b[2J\\u009b31m\\r\\n[red]x"}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body)
    with responding(head + body) as url:
        assert r"\x1b[2J\x9b31m\r\n[red]x" in cli("send", "--url", url).line


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://"])
def test_a_bad_url_is_one_line(cli: Cli, url: str) -> None:
    assert "http://127.0.0.1:8000" in cli("send", "--url", url).line


@pytest.mark.parametrize("payload", ["", "{a:1}", "text", '"\\ud800"', "[" * 100_000])
def test_a_payload_that_is_not_json_is_never_sent(cli: Cli, payload: str) -> None:
    assert "The payload is not JSON" in cli("send", "--payload", payload).line


def test_a_payload_file_that_is_not_there_is_one_line(cli: Cli) -> None:
    assert "No such file" in cli("send", "--file", "missing.json").line


def test_payload_and_file_exclude_each_other(cli: Cli) -> None:
    assert cli("send", "--payload", "1", "--file", "x").code == 2


@pytest.mark.parametrize("option", ["--key", "--lane"])
def test_a_name_that_no_event_can_have_is_refused(cli: Cli, option: str) -> None:
    assert "control character" in cli("send", option, f"{new_key()}\x1b").line
