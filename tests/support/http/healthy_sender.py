"""A well-behaved sender, in a process of its own, beside whatever a test does.

It posts at a fixed rate, alternately on kept connections and on new ones. The time of a request is
measured from when it was due, not from when it was sent: while the server stalls, requests that
could not be sent count too.

    with healthy_sender(server) as sender:
        attack(server)
    sender.report.assert_unharmed()
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from threading import Barrier, Event, Thread

from support.http.posting import posted
from support.http.wire import Disconnected, Wire, request
from support.servers.server import Server

P99_SECONDS = 1.0
_THREADS = 4
NO_RESPONSE = 0  # counted as a status: the connection broke, or there was no response


@dataclass(frozen=True)
class Report:
    statuses: Counter[int]
    seconds: list[float]

    @property
    def p99(self) -> float:
        return quantiles(self.seconds, n=100)[98]

    def assert_unharmed(self, *, at_least: int = 50) -> None:
        """Check that every request was accepted, and 99 % of them within a second."""
        assert set(self.statuses) == {202}, self.statuses
        assert self.statuses[202] >= at_least, self.statuses
        assert self.p99 < P99_SECONDS, (self.p99, max(self.seconds))


class HealthySender:
    """A running sender. Its `report` is set when the block has ended."""

    report: Report


@contextmanager
def healthy_sender(
    server: Server, *, token: str | None = None, every: float = 0.02
) -> Iterator[HealthySender]:
    """Run a sender; the block begins after its first response."""
    sender = HealthySender()
    command = [sys.executable, "-m", "support.http.healthy_sender"]
    with subprocess.Popen(
        [*command, str(server.port), str(every), token or ""],
        env=server.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "sending\n"
            yield sender
            output, _ = process.communicate("stop\n", timeout=30)
            seen = json.loads(output)
            statuses = Counter({int(status): n for status, n in seen["statuses"].items()})
            sender.report = Report(statuses, seen["seconds"])
        finally:
            process.kill()


def send_until_stopped(port: int, every: float, token: str) -> Report:
    """Post until a line arrives on standard input. Several threads take turns, so that the rate
    does not depend on the time of a single request."""
    stop, begun = Event(), Barrier(_THREADS + 1)
    reports = [Report(Counter(), []) for _ in range(_THREADS)]
    start = time.monotonic()

    def send(number: int) -> None:
        due = start + number * every
        kept: Wire | None = None
        while not stop.wait(max(due - time.monotonic(), 0)):
            sent = len(reports[number].seconds)
            kept, status = _post(port, kept if sent % 2 else None, headers, keep=kept)
            reports[number].statuses[status] += 1
            reports[number].seconds.append(time.monotonic() - due)
            due += every * _THREADS
            if sent == 0:
                begun.wait()

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    threads = [Thread(target=send, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    begun.wait()
    print("sending", flush=True)
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()
    return Report(
        sum((report.statuses for report in reports), Counter()),
        [seconds for report in reports for seconds in report.seconds],
    )


def _post(
    port: int, wire: Wire | None, headers: dict[str, str], *, keep: Wire | None
) -> tuple[Wire | None, int]:
    """Post on the given connection or on a new one. Return the connection to keep, and the
    status."""
    try:
        used = wire or Wire(port)
        status = used.send(request("POST", "/webhooks", posted(), headers)).read().status
    except (Disconnected, OSError):
        return None, NO_RESPONSE
    if keep is not None and keep is not used:
        used.socket.close()
        return keep, status
    return used, status


def main() -> None:
    port, every, token = sys.argv[1:]
    report = send_until_stopped(int(port), float(every), token)
    print(json.dumps({"statuses": report.statuses, "seconds": report.seconds}))


if __name__ == "__main__":
    main()
