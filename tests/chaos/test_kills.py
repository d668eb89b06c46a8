"""The long versions of F2 and F3: kills at any moment, and at every system call that writes."""

import shutil
import subprocess
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from support.http.wire import Disconnected
from support.ledgers.history import APP, SETTINGS, History, kill_repeatedly
from support.servers.app_server import AppServer, serving
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

CYCLES = 300
CALLS = ("pwrite64", "fdatasync", "sendto", "write", "ftruncate", "unlink")
RARE = ("sendto", "ftruncate", "unlink")  # one POST may do without these


async def test_three_hundred_kills_under_load_lose_nothing(tmp_path: Path) -> None:  # F2
    with serving(tmp_path, APP, SETTINGS) as server:
        history = await kill_repeatedly(server, CYCLES)
        assert len(history.acked) > 20 * CYCLES
        history.check(server.query)
        assert server.stop() == 0


class Doomed(AppServer):
    """A server that strace, once attached, kills at its n-th call of one system call."""

    def doom(self, call: str, when: int) -> "subprocess.Popen[bytes]":
        command = ["strace", "-f", "-qq", "-p", str(self.pid), "-o", "/dev/null"]
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={when}"]
        return subprocess.Popen([*command, *inject], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("call", CALLS)
def test_a_kill_at_any_system_call_loses_nothing(tmp_path: Path, call: str) -> None:  # F3
    assert shutil.which("strace"), "make chaos needs strace"
    for when in count(1):
        server = Doomed(tmp_path / str(when), APP, SETTINGS)
        try:
            server.wait_until_ready()
            if survived(server, call, when):
                assert when > 1 or call in RARE
                return
        finally:
            if server.process.poll() is None:
                server.kill()


def survived(server: Doomed, call: str, when: int) -> bool:
    """Send one POST under strace, restart without strace, and check the history. Return whether the
    server survived."""
    history = History(seed=when)
    tracer = server.doom(call, when)
    attached(server.pid)
    key, body = history.next_event()
    with suppress(Disconnected, OSError):  # not acknowledged: the event may exist or not
        history.note(key, server.post(body).json()["id"])
    alive = not dies_within(server, 1.0)
    tracer.kill()
    tracer.wait()
    if alive:
        server.kill()
    server.restart()
    server.wait_until_idle()
    history.check(server.query)
    server.kill()
    return alive


def dies_within(server: Doomed, seconds: float) -> bool:
    """Wait for the server to die: its workers may still make the fatal call."""
    try:
        server.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def attached(pid: int) -> None:
    status = Path(f"/proc/{pid}/status")
    eventually(lambda: "TracerPid:\t0\n" not in status.read_text(), every=0.02)
