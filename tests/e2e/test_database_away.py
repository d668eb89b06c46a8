"""A start waits while PostgreSQL is unavailable, and fails where waiting cannot help (F38)."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from ackbox import Inbox
from ackbox.app import App
from ackbox.config import Settings
from ackbox.errors import Unavailable
from ackbox.model import Stats
from ackbox.stores.postgres.read.reader import PostgresReader
from support.databases.postgres import PostgresServer, find_installs, running_postgres
from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import Disconnected, exchange, request
from support.servers.cli import Done, run
from support.servers.server import Server
from support.time.polling import eventually

PASSWORD = "hunter2-hunter2-hunter2"
APP = "from ackbox import Inbox\ninbox = Inbox()\n"
COMMANDS = [("serve",), ("work", "worked:inbox")]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that trusts the tests, and requires a password of all others."""
    with running_postgres(find_installs()[-1]) as started:
        started.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
        started.execute(f"CREATE ROLE owner LOGIN PASSWORD '{PASSWORD}'")
        started.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # the default since 15
        rules = "host all postgres all trust\nhost all all all scram-sha-256\n"
        (started.data / "pg_hba.conf").write_text(rules)
        started.execute("SELECT pg_reload_conf()")
        yield started


@contextmanager
def starting(folder: Path, url: str, command: tuple[str, ...] = ("serve",)) -> Iterator[Server]:
    """Start a server, and wait only until its socket is open."""
    folder.mkdir(exist_ok=True)
    (folder / "worked.py").write_text(APP)
    settings = {"DATABASE_URL": url, "PORT": free_port(), "WORKER_COUNT": "1"}
    server = Server(folder, settings, command=command)
    server.port = int(settings["PORT"])
    try:
        assert eventually(lambda: try_get(server, "/health")) == 200
        yield server
        assert "Traceback" not in server.log
    finally:
        server.kill()


# F38
@pytest.mark.parametrize("command", COMMANDS, ids=["serve", "work"])
def test_a_server_that_comes_later_is_waited_for(
    server: PostgresServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    url = server.create_database()
    server.stop()
    with starting(tmp_path, url, command) as ours:
        try:
            detail = assert_problem(ours.get("/ready"), 503, **{"retry-after": "1"})
            assert "starting" in detail
            expected = 503 if command == ("serve",) else 404
            assert_problem(ours.post(posted()), expected)
            assert ours.get("/metrics").status == 200
            errors = eventually(lambda: [r for r in ours.records() if r["level"] == "error"])
            assert errors[0]["event"] == "store unavailable"
        finally:
            server.start()
        eventually(ours.is_ready, within=20)
        if command == ("serve",):
            assert ours.post(posted()).status == 202
        assert ours.stop() == 0


# W5, F38
@pytest.mark.parametrize("command", COMMANDS, ids=["serve", "work"])
def test_a_signal_ends_the_waiting_at_once_with_0(tmp_path: Path, command: tuple[str, ...]) -> None:
    with starting(tmp_path, f"postgresql://127.0.0.1:{free_port()}/x", command) as ours:
        eventually(lambda: "store unavailable" in ours.log)
        started = time.monotonic()
        assert ours.stop() == 0
        assert time.monotonic() - started < 3
        assert "ackbox:" not in ours.log


# W5, F38
def test_a_signal_ends_the_waiting_for_a_silent_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with starting(tmp_path, f"postgresql://127.0.0.1:{port}/x") as ours:
            connection, _ = silent.accept()
            with connection:
                started = time.monotonic()
                assert ours.stop() == 0
                assert time.monotonic() - started < 3


# F38
def test_a_database_that_takes_no_writes_is_waited_for(
    server: PostgresServer, tmp_path: Path
) -> None:
    url = server.create_database()
    assert run("migrate", folder=tmp_path, DATABASE_URL=url).code == 0
    allow = f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = "
    server.execute(allow + "on")
    with starting(tmp_path, url) as ours:
        assert_waits_for_writes(ours)
        server.execute(allow + "off")
        eventually(ours.is_ready, within=20)
        assert ours.post(posted()).status == 202
        lines = [record["event"] for record in ours.records()]
        assert (lines.count("store unavailable"), lines.count("store recovered")) == (1, 1)
        assert ours.stop() == 0


# F38
def test_a_standby_is_waited_for_until_it_is_promoted(tmp_path: Path) -> None:
    with running_postgres(find_installs()[-1]) as alone:
        url = alone.create_database()
        assert run("migrate", folder=tmp_path, DATABASE_URL=url).code == 0
        alone.stop()
        (alone.data / "standby.signal").touch()
        alone.start()
        with starting(tmp_path, url) as ours:
            assert_waits_for_writes(ours)
            assert alone.execute("SELECT pg_promote()") == "t"
            eventually(ours.is_ready, within=20)
            assert ours.post(posted()).status == 202
            assert ours.stop() == 0


def assert_waits_for_writes(ours: Server) -> None:
    eventually(lambda: "store unavailable" in ours.log)
    for response in (ours.get("/ready"), ours.post(posted())):
        detail = assert_problem(response, 503, **{"retry-after": "1"})
        assert "takes no writes: it is a standby, or read-only" in detail


# F51
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("owner:wrong-" + PASSWORD + "@{host}/postgres", "password authentication failed"),
        ("nobody:" + PASSWORD + "@{host}/postgres", "nobody"),
        ("owner:" + PASSWORD + "@{host}/nowhere", '"nowhere" does not exist'),
        ("owner:" + PASSWORD + "@{host}/postgres?sslmode=odd", "sslmode"),
        ("owner:" + PASSWORD + "@{host}/postgres?no_such_setting=1", "no_such_setting"),
        ("owner:" + PASSWORD + "@127.0.0.1:99999/postgres", "99999"),
        ("reader:" + PASSWORD + "@{host}/postgres", "CREATE SCHEMA ackbox AUTHORIZATION reader"),
    ],
)
def test_a_refused_address_is_one_line_without_the_password(
    server: PostgresServer, tmp_path: Path, address: str, reason: str
) -> None:
    url = "postgresql://" + address.format(host=f"127.0.0.1:{server.port}")
    done = serve_until_it_ends(tmp_path, url)
    assert reason in error_line(done)
    assert PASSWORD not in done.err


# F51
@pytest.mark.parametrize("url", ["mysql://u:{0}@h/x", "postgresql://u:{0}@h:port/x", "{0}"])
def test_an_invalid_address_is_one_line_without_the_password(tmp_path: Path, url: str) -> None:
    done = serve_until_it_ends(tmp_path, url.format(PASSWORD))
    assert "DATABASE_URL" in error_line(done)
    assert PASSWORD not in done.err


def test_a_newer_schema_is_one_line(server: PostgresServer, tmp_path: Path) -> None:
    url = server.create_database()
    assert run("migrate", folder=tmp_path, DATABASE_URL=url).code == 0
    server.execute(
        "INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', '')",
        url.rpartition("/")[2],
    )
    assert "newer ackbox" in error_line(serve_until_it_ends(tmp_path, url))


# F38
async def test_a_database_that_goes_away_during_the_start_is_waited_for(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, failures = PostgresReader.stats, [Unavailable("away"), Unavailable("away")]

    async def stats(reader: PostgresReader, now: datetime) -> Stats:
        if failures:
            raise failures.pop()
        return await original(reader, now)

    monkeypatch.setattr(PostgresReader, "stats", stats)
    settings = Settings(database_url=SecretStr(server.create_database()))
    async with Inbox().running(App(settings, guest=True)) as started:
        assert started.why_not_ready() is None
    assert failures == []


# F51
def test_the_password_is_in_no_log(server: PostgresServer, tmp_path: Path) -> None:
    url = server.create_database()
    server.execute(f"ALTER DATABASE {url.rpartition('/')[2]} OWNER TO owner")
    url = url.replace("postgres@", f"owner:{PASSWORD}@")
    with starting(tmp_path, url) as ours:
        eventually(ours.is_ready)
        server.stop()
        try:
            eventually(lambda: ours.get("/ready").status == 503)
            responses = [ours.get("/ready").body, ours.post(posted()).body]
        finally:
            server.start()
        eventually(ours.is_ready, within=20)
        assert PASSWORD not in ours.log
        assert not any(PASSWORD.encode() in response for response in responses)
        assert PASSWORD not in ours.get("/metrics").body.decode()


def serve_until_it_ends(folder: Path, url: str) -> Done:
    return run("serve", folder=folder, DATABASE_URL=url, PORT="0", LOG_FORMAT="json")


def error_line(done: Done) -> str:
    """Return the only line that is not a log line."""
    assert done.code == 1, done
    (line,) = [line for line in done.err.splitlines() if not line.startswith("{")]
    assert line.startswith("ackbox: ")
    return line


def try_get(server: Server, path: str) -> int:
    assert server.process.poll() is None, server.log
    try:
        return exchange(server.port, request("GET", path)).status
    except (Disconnected, OSError):
        return 0


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
