"""One hostile peer beside a sender that does everything right: the sender notices nothing (F55)."""

from pathlib import Path

import pytest

from support.healthy_sender import healthy_sender
from support.loop_stalls import STALL_SECONDS, forget_stalls, longest_stall
from support.posting import posted
from support.server import running
from support.wire import Wire, request

pytestmark = pytest.mark.serial


def test_the_sender_notices_when_it_is_kept_out(tmp_path: Path) -> None:
    with (
        running(tmp_path, {"QUEUE_MAXSIZE": "20"}) as server,
        healthy_sender(server, every=0.001) as sender,
    ):
        assert {server.post(posted()).status for _ in range(50)} == {202, 429}

    with pytest.raises(AssertionError, match="429"):
        sender.report.assert_unharmed(at_least=1)


def test_the_sender_notices_a_stall_of_the_event_loop(tmp_path: Path) -> None:
    stalls = tmp_path / "stalls"
    with running(tmp_path, None, {"stalls": str(stalls)}) as server:
        forget_stalls(stalls)
        with healthy_sender(server, every=0.02) as sender:
            server.process.send_signal(19)  # SIGSTOP
            with Wire(server.port, timeout=1.5) as wire, pytest.raises(TimeoutError):
                wire.send(request()).read()
            server.process.send_signal(18)  # SIGCONT
            assert server.get("/health").status == 200

        assert longest_stall(stalls) < STALL_SECONDS  # it did not compute: no stall of its own
    assert set(sender.report.statuses) == {202}
    assert sender.report.p99 > 1
