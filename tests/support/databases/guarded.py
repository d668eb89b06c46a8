"""A database server of the tests, on a loopback port. A guardian process ends it with the tests."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Self

from support.databases import guardian
from support.time.polling import eventually

_READY = re.compile("eady to accept (read-only )?connections")
_PORT_TAKEN = "Address already in use"
_GONE_WITHIN = 30.0


class GuardedServer(ABC):
    """A server that keeps the port of its first start, so that clients find it after a restart."""

    def __init__(self, folder: Path, *, user: str = "") -> None:
        self.folder = folder
        self.user = user
        self.port = 0
        self.log_file = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """Return a command that runs the server in the foreground, logging to stdout or stderr."""

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def start(self) -> Self:
        """Start the server, and return when it accepts connections."""
        assert self.process is None, "the server already runs"
        for port in [self.port] if self.port else free_ports(5):
            if self._starts_on(port):
                self.port = port
                return self
        raise AssertionError(f"no server came up:\n{self.log}")

    def stop(self) -> None:
        """Shut the server down, without waiting for clients. Do nothing if it does not run."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server like a crash, and return when no process of it is left."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Start the server on the same data and port, whether it runs, was stopped or killed."""
        self.stop()
        return self.start()

    def _starts_on(self, port: int) -> bool:
        log_start = self._spawn(port)
        running = self.process
        assert running is not None

        def has_started_or_ended() -> bool:
            return running.poll() is not None or _READY.search(self.log[log_start:]) is not None

        eventually(has_started_or_ended, within=_GONE_WITHIN)
        if running.poll() is None:
            return True
        self.stop()
        assert _PORT_TAKEN in self.log[log_start:], self.log
        return False

    def _spawn(self, port: int) -> int:
        """Start the process, and return how long the log was before."""
        with self.log_file.open("ab") as log:
            log_start = len(self.log)
            self.process = subprocess.Popen(
                # Isolated and without site: it starts faster, and coverage does not trace it.
                [sys.executable, "-I", "-S", guardian.__file__, self.user, *self.command(port)],
                cwd=self.folder,
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the tests, which then end this process
            )
        return log_start

    def _end(self, order: signal.Signals) -> None:
        if self.process is None:
            return
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it ended by itself
            self.process.stdin.write(bytes([order]))
            self.process.stdin.flush()
        self.process.wait(_GONE_WITHIN)
        self.process.stdin.close()
        self.process = None


def clean_environment() -> dict[str, str]:
    """Return an environment without PG* variables and without the locale of the caller."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}


def free_ports(count: int) -> list[int]:
    """Return free ports. Another process may still take one before it is used.

    They lie below the range of ephemeral ports: inside that range, a client that keeps retrying
    while the server is down could eventually connect to itself.
    """
    candidates = random.sample(range(15_000, 32_000), 100)
    return [port for port in candidates if _is_free(port)][:count]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
