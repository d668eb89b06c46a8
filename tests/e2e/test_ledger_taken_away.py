"""If the ledger of a running server is truncated, replaced or removed, no request gets `202`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.http.posting import posted
from support.http.wire import Disconnected
from support.servers.server import FAST_MONITOR, Server, running
from support.time.polling import eventually


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def remove(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def overwrite(path: Path) -> None:
    """Overwrite the file in place, as `cp other.db events.db` does."""
    path.write_bytes(b"\xff" * path.stat().st_size)


def status(server: Server, key: str) -> int | None:
    """Return the status of a POST; None if the server has ended."""
    try:
        return server.post(posted(key)).status
    except (ConnectionError, Disconnected):
        return None


@pytest.mark.parametrize("change", [truncate, shorten, remove, remove_all, replace, overwrite])
def test_nothing_is_acknowledged_any_more(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:  # F54, S1
    with running(tmp_path) as server:
        assert server.post(posted("before")).status == 202
        change(server.ledger)
        assert [status(server, f"after-{number}") for number in range(5)] in (
            [503] * 5,
            *([503] * number + [None] * (5 - number) for number in range(5)),
        )
        if change in (truncate, shorten, overwrite):
            assert server.process.wait(20) == 1
            assert "is damaged" in server.log
        else:
            assert server.get("/ready").status == 503


# S12
def test_a_removed_lock_file_lets_no_second_server_start(tmp_path: Path) -> None:
    with running(tmp_path, changes={"set": FAST_MONITOR}) as first:
        lock = first.ledger.with_name("events.db.lock")
        lock.unlink()
        eventually(lock.exists)
        eventually(lambda: first.post(posted("still-the-only-one")).status == 202)
        second = Server(tmp_path, log_file=tmp_path / "second.log")
        assert second.process.wait(20) == 1
        assert f"in use by process {first.pid}" in second.log
