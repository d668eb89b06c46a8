"""Every way to hold capacity at once and for long, beside a healthy sender (F55)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.http.capacity import NEWLINES, STALLED, hang_up_after, one_byte_short, waves
from support.http.healthy_sender import healthy_sender
from support.servers.loop_stalls import STALL_SECONDS, longest_stall, reset_stalls
from support.servers.server import FAST_MONITOR, Server, running
from support.time.polling import eventually

pytestmark = pytest.mark.chaos


def test_half_a_minute_of_requests_that_never_end_harms_no_healthy_sender(tmp_path: Path) -> None:
    settings = {"LOG_LEVEL": "WARNING", "QUEUE_MAXSIZE": "1000000"}  # S2, S3, F55
    stalls = tmp_path / "stalls"
    with running(tmp_path, settings, {"set": FAST_MONITOR, "stalls": str(stalls)}) as server:
        reset_stalls(stalls)
        with healthy_sender(server) as sender, ThreadPoolExecutor() as threads:
            attacks = [threads.submit(send_newlines, server)]
            attacks += [threads.submit(stall, server, kind) for kind in STALLED]
            for attack in attacks:
                attack.result()
        eventually(lambda: server.metric("ackbox_buffer_bytes") == 0, within=15)

        sender.report.assert_unharmed(at_least=1000)
        assert longest_stall(stalls) < STALL_SECONDS
        assert server.metric('ackbox_events_refused_total{reason="slow_body"}') > 0


def send_newlines(server: Server) -> None:
    for _ in waves(seconds=30):
        hang_up_after(server, NEWLINES, count=4)


def stall(server: Server, kind: str) -> None:
    count, data = STALLED[kind]
    for _ in waves(seconds=30):
        with one_byte_short(server, data, count=count) as wires:
            wires[0].is_closed(within=5)
