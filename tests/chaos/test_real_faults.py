"""Real versions of the faults that `make test` injects: a disk that fills up, a sync that fails.

These tests need root, mount and strace. A filesystem with a file open for writing cannot be turned
read-only here, so F10 stays with the fault-injecting VFS.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from support.servers.server import Server, running
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _requirements() -> None:
    assert os.geteuid() == 0, "make chaos mounts filesystems: run it as root"
    for program in ("mount", "umount", "strace"):
        assert shutil.which(program), f"make chaos needs {program}"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        run("umount", "-l", str(folder))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def post(server: Server, size: int = 100) -> tuple[int, str]:
    key = str(uuid4())
    response = server.post({"idempotency_key": key, "payload": "x" * size})
    return response.status, key


def is_recorded(server: Server, key: str) -> bool:
    return server.get(f"/webhooks?idempotency_key={key}").status == 200


def post_until_refused(server: Server, size: int) -> list[str]:
    accepted: list[str] = []
    while True:
        status, key = post(server, size)
        if status != 202:
            assert status == 503
            return accepted
        accepted.append(key)


def test_a_full_disk_refuses_and_recovers_and_loses_nothing(tmp_path: Path) -> None:  # F9
    with small_disk(tmp_path / "disk", "64m") as disk, running(disk) as server:
        accepted = post_until_refused(server, 256 * 1024)
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            while True:
                try:
                    file.write(bytes(MIB))
                    file.flush()
                except OSError:
                    break
        assert post(server)[0] == 503
        assert server.get("/health").status == 200
        assert server.get("/metrics").status == 200
        assert server.get("/ready").status == 503
        assert all(is_recorded(server, key) for key in accepted)
        errors = [line for line in server.records() if line["level"] == "error"]
        assert len(errors) <= 3

        ballast.unlink()
        run("mount", "-o", "remount,size=128m", str(disk))
        eventually(lambda: post(server)[0] == 202, within=5.0)
        assert all(is_recorded(server, key) for key in accepted)
        assert server.stop() == 0


@contextmanager
def failing_syncs(server: Server, when: str) -> Iterator[None]:
    """Let strace fail those fdatasync calls of the server that `when` selects."""
    rule = f"inject=fdatasync:error=EIO:when={when}"
    tracer = subprocess.Popen(
        ["strace", "-f", "-p", str(server.pid), "-e", "trace=fdatasync", "-e", rule],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    try:
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def test_a_failed_sync_is_never_acknowledged_and_the_store_recovers(
    tmp_path: Path,
) -> None:  # F8
    with running(tmp_path) as server:
        status, kept = post(server)
        assert status == 202
        with failing_syncs(server, "1"):
            assert post(server)[0] == 503
            eventually(server.is_ready, within=10.0)
            assert post(server)[0] == 202
        assert is_recorded(server, kept)
        assert server.stop() == 0


def test_a_second_failed_sync_within_a_minute_ends_the_process(tmp_path: Path) -> None:  # F8
    with running(tmp_path) as server:
        status, kept = post(server)
        assert status == 202
        with failing_syncs(server, "1+"):
            assert post(server)[0] == 503
            assert server.process.wait(30) != 0
        server.restart()
        assert is_recorded(server, kept)
        assert server.stop() == 0
