"""`POST /api/backup`: into `BACKUP_DIR` and nowhere else, for operators (S1, S13)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Inbox
from ackbox.app.backends import NO_COPY
from support.databases.postgres import Install, PostgresServer, find_installs
from support.http.posting import posted
from support.http.problems import assert_problem
from support.http.wire import Response, exchange, request
from support.servers.server import Server, read_ledger, running

TOKEN = "twelve-boxers-hunt-victor"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups")


@pytest.fixture(scope="module")
def keeper(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("keeper"), {"BACKUP_DIR": str(folder)}) as server:
        assert server.post(posted("first")).status == 202
        yield server


def request_backup(server: Server, body: object, **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **server.operator, **headers}
    return exchange(server.port, request("POST", "/api/backup", raw, sent))


def error_of(response: Response) -> str:
    assert response.status == 200, response
    return str(response.lines()[-1]["error"])


# S1
def test_without_backup_dir_backups_over_http_are_403(server: Server, tmp_path: Path) -> None:
    for name in ("copy.db", str(tmp_path / "copy.db")):
        assert "set ACKBOX_BACKUP_DIR" in assert_problem(
            request_backup(server, {"name": name}), 403
        )
    assert list(tmp_path.iterdir()) == []


# S1
def test_an_operator_gets_a_copy_in_the_folder(keeper: Server, folder: Path) -> None:
    assert_problem(request_backup(keeper, {"name": "copy.db"}, Authorization="Bearer wrong"), 401)

    response = request_backup(keeper, {"name": "copy.db"})

    assert response.lines()[-1] == {"done": True}
    copy = folder / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert read_ledger(copy, "SELECT idempotency_key FROM events") == [("first",)]
    assert "exists already" in error_of(request_backup(keeper, {"name": "copy.db"}))


# S1
@pytest.mark.parametrize(
    "name",
    ["..", ".", "../copy.db", "/tmp/copy.db", "a/copy.db", "./copy.db", "copy.db/", "a\n.db",
     "a\0.db", "..//x", "\u2028"],
)  # fmt: skip
def test_a_name_that_leaves_the_folder_is_400(keeper: Server, folder: Path, name: str) -> None:
    before = sorted(folder.iterdir())

    assert "BACKUP_DIR" in assert_problem(request_backup(keeper, {"name": name}), 400)

    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b"null", b"{}", b'{"name":1}', b'{"name":""}', b'{"path":"x.db"}',
     b'{"name":"' + b"x" * 256 + b'"}', b'{"name":"\\ud800"}', b"\xff", b"[" * 100_000,
     b'{"name":"a.db","more":1}'],
)  # fmt: skip
def test_an_invalid_backup_request_is_400(keeper: Server, body: bytes) -> None:
    assert_problem(request_backup(keeper, body), 400)


# S1
@pytest.mark.parametrize("suffix", ["", ".part"])
def test_a_link_in_the_folder_is_not_followed(keeper: Server, folder: Path, suffix: str) -> None:
    size = keeper.ledger.stat().st_size
    link = folder / f"linked.db{suffix}"
    link.symlink_to(keeper.ledger)

    error_of(request_backup(keeper, {"name": "linked.db"}))

    assert link.is_symlink()
    assert keeper.ledger.stat().st_size == size
    assert keeper.post(posted("first")).status == 200
    link.unlink()


# S13
def test_a_name_that_is_too_long_for_the_disk_is_an_error_line(keeper: Server) -> None:
    assert "too long" in error_of(request_backup(keeper, {"name": "x" * 255}))
    assert keeper.post(posted("first")).status == 200


# S13
def test_a_folder_that_cannot_be_written_is_an_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for folder, reason in (
        ("nowhere", "No such file"),
        ("file", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
    ):
        settings = {"BACKUP_DIR": str(tmp_path / folder)}
        with running(tmp_path / "server", settings) as server:
            assert reason in error_of(request_backup(server, {"name": "copy.db"}))
            assert server.post(posted()).status == 202


# S13
def test_an_error_of_the_operating_system_is_an_error_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ackbox.stores.sqlite.admin.backup._assert_free", forbidden)
    inbox = Inbox({"db_path": tmp_path / "inbox.db", "backup_dir": tmp_path, "api_token": TOKEN})
    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/", inbox.asgi())
    with TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        response = client.post("/api/backup", json={"name": "copy.db"})
    assert response.json() == {"error": f"Cannot write {tmp_path / 'copy.db'}: Permission denied."}


def test_a_ledger_on_postgres_is_not_copied(
    tmp_path: Path, postgres_of: Callable[[Install], PostgresServer]
) -> None:
    database = postgres_of(find_installs()[-1])
    url = database.create_database()
    settings = {"DATABASE_URL": url, "API_TOKEN": TOKEN, "BACKUP_DIR": str(tmp_path)}
    with running(tmp_path / "server", settings) as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = request_backup(server, {"name": "copy.db"}, **headers)
        assert response.lines() == [{"error": NO_COPY}]
    assert not (tmp_path / "copy.db").exists()
    assert "pg_dump" in NO_COPY
    database.recycle_database(url)
