"""A database server of the tests' own, on a loopback port, in the care of a guardian."""

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

from support import guardian
from support.polling import eventually

_READY = re.compile("eady to accept (read-only )?connections")
_PORT_TAKEN = "Address already in use"
_GONE_WITHIN = 30.0


class GuardedServer(ABC):
    """Keeps its port from its first start on, so that clients find it again after a restart."""

    def __init__(self, folder: Path, *, user: str = "") -> None:
        self.folder = folder
        self.user = user
        self.port = 0
        self.log_file = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """What runs the server in the foreground, logging to standard output or error."""

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def start(self) -> Self:
        """Returns when it accepts connections."""
        assert self.process is None, "it runs already"
        for port in [self.port] if self.port else free_ports(5):
            if self._starts_on(port):
                self.port = port
                return self
        raise AssertionError(f"no server came up:\n{self.log}")

    def stop(self) -> None:
        """In good order, without waiting for clients to leave; no-op if it does not run."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """A crash. Returns when no process of it is left."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """On the same data and the same port, whether it runs, was stopped or was killed."""
        self.stop()
        return self.start()

    def _starts_on(self, port: int) -> bool:
        said = self._spawn(port)
        running = self.process
        assert running is not None

        def settled() -> bool:
            return running.poll() is not None or _READY.search(self.log[said:]) is not None

        eventually(settled, within=_GONE_WITHIN)
        if running.poll() is None:
            return True
        self.stop()
        assert _PORT_TAKEN in self.log[said:], self.log
        return False

    def _spawn(self, port: int) -> int:
        """Returns how long the log was before."""
        with self.log_file.open("ab") as log:
            said = len(self.log)
            self.process = subprocess.Popen(
                # Isolated and without site: it starts faster, and coverage does not follow.
                [sys.executable, "-I", "-S", guardian.__file__, self.user, *self.command(port)],
                cwd=self.folder,
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then end this
            )
        return said

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
    """Without the PG* variables and the locale of whoever runs the tests."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}


def free_ports(count: int) -> list[int]:
    """Another process may still be faster to use one.

    They lie below the ports that systems give to outgoing connections: among those, a client that
    tries again and again while the server is down would at last connect to itself.
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
