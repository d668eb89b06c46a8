"""A server process under test: started on a free port, watched, and stopped by SIGTERM."""

import http.client
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.failure import BenchFailed

ROOT = Path(__file__).parent.parent
START_LIMIT = 30.0
STOP_LIMIT = 40.0
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Program:
    """`drained` sends its output through a pipe that is read to the end, as a container's is."""

    command: Sequence[str]
    environment: Mapping[str, str]
    drained: bool = False


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    port: int

    def cpu_seconds(self) -> float | None:
        """User and system time of all its threads; None where there is no /proc."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        except FileNotFoundError:
            return None
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(program: Program, directory: Path) -> Iterator[Server]:
    """Runs in `directory`, which gets its log; no setting of the caller's shell leaks in."""
    port = free_port()
    log = directory / "server.log"
    process = _start(program, directory, log, {**program.environment, "PORT": str(port)})
    try:
        _await_ready(process, port, log)
        yield Server(process, port)
        _stop(process, log)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, **extra}


def _start(
    program: Program, directory: Path, log: Path, extra: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("wb") as sink:
        process = subprocess.Popen(
            program.command,
            cwd=directory,
            env=clean_environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program.drained else sink,
            stderr=subprocess.STDOUT,
        )
    if process.stdout is not None:
        threading.Thread(target=_drain, args=(process.stdout,), daemon=True).start()
    return process


def _drain(output: IO[bytes]) -> None:
    with output:
        while os.read(output.fileno(), 1 << 20):
            pass


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchFailed(f"the server did not start: {_tail(log)}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    """Below 500 is enough: the baselines have no /ready, ackbox says 503 until it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"the server ignored SIGTERM for {STOP_LIMIT:.0f} s") from None
    if code not in (0, -signal.SIGTERM):
        raise BenchFailed(f"the server ended with {code}: {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return "\n".join(lines[-15:]) or "it logged nothing"
