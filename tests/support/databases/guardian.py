"""Run a server that cannot outlive the tests, however the tests end.

`python guardian.py USER COMMAND...` reads orders from its standard input: a byte is a signal for
the server. The end of the input, which comes also when the starter is killed, stops the server.
The guardian exits once the server and all processes that the server started are gone.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_STOP_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def identity(user: str) -> dict[str, Any]:
    """Return arguments of `subprocess` that run a command as this user, if a name is given."""
    if not user:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def guard(user: str, command: list[str]) -> int:
    adopt_orphans()
    # Every descendant inherits the writing end, so the reading end closes with the last of them.
    reading_end, writing_end = os.pipe()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=(writing_end,), **identity(user)
    ) as server:
        os.close(writing_end)
        threading.Thread(target=forward_signals, args=(server,), daemon=True).start()
        code = server.wait()
    kill_orphans()
    os.read(reading_end, 1)
    return code


def forward_signals(server: "subprocess.Popen[bytes]") -> None:
    while number := os.read(0, 1):
        server.send_signal(number[0])
    server.send_signal(signal.SIGINT)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


def adopt_orphans() -> None:
    """Make this process, not init, the parent of processes that a killed server leaves behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans() -> None:
    """Kill what is left: a PostgreSQL backend notices its server's death only after its query."""
    if sys.platform == "linux":
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1], sys.argv[2:]))
