"""One hostile peer beside a well-behaved sender: the sender notices nothing (F55)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http.attacks import (
    ReusedConnection,
    closing_trailer,
    endless_trailer,
    many_trailers,
    one_byte_chunks,
)
from support.http.capacity import wait_for_events
from support.http.deliveries import OPEN_SOURCE
from support.http.healthy_sender import healthy_sender
from support.http.posting import posted
from support.http.wire import Wire, request
from support.servers.loop_stalls import STALL_SECONDS, longest_stall, reset_stalls
from support.servers.server import Server, running

pytestmark = pytest.mark.serial
TOKEN = "a-token-of-senders"
GOOD = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def stalls(tmp_path: Path) -> Path:
    return tmp_path / "stalls"


@pytest.fixture
def guarded(tmp_path: Path, stalls: Path) -> Iterator[Server]:
    """A server that requires a token from senders, and records stalls of its event loop."""
    tmp_path.joinpath("ackbox.toml").write_text(OPEN_SOURCE)
    with running(tmp_path, {"INGEST_TOKEN": TOKEN}, {"stalls": str(stalls)}) as server:
        reset_stalls(stalls)
        yield server


def test_an_endless_trailer_is_refused_and_does_not_slow_other_senders(  # S4, F55
    guarded: Server, stalls: Path
) -> None:
    with healthy_sender(guarded, token=TOKEN) as sender:
        taken = [
            endless_trailer(guarded, path, body_mib=2, trailer_mib=32)
            for path in ("/webhooks", "/in/anyone")
        ]
        for path in ("/webhooks", "/in/anyone"):
            many_trailers(guarded, 4, path)
        for path in ("/webhooks/batch", "/in/anyone"):
            one_byte_chunks(guarded, 10, path)
        wait_for_events(guarded, 60)

    sender.report.assert_unharmed()
    assert longest_stall(stalls) < STALL_SECONDS
    assert max(taken) < 32  # only what fits into the buffers of two sockets


def test_a_request_after_a_closing_trailer_never_waits_in_vain(  # C1, F57
    guarded: Server,
) -> None:
    with ReusedConnection(guarded) as connection:
        for headers in [GOOD, {}] * 20:
            connection.send(closing_trailer(headers))
            assert connection.send(request("POST", "/webhooks", posted(), GOOD)) == 202


def test_the_healthy_sender_reports_refused_requests(tmp_path: Path) -> None:
    with (
        running(tmp_path, {"QUEUE_MAXSIZE": "20"}) as server,
        healthy_sender(server, every=0.001) as sender,
    ):
        assert {server.post(posted()).status for _ in range(50)} == {202, 429}

    with pytest.raises(AssertionError, match="429"):
        sender.report.assert_unharmed(at_least=1)


def test_the_healthy_sender_reports_a_stalled_server(tmp_path: Path) -> None:
    stalls = tmp_path / "stalls"
    with running(tmp_path, None, {"stalls": str(stalls)}) as server:
        reset_stalls(stalls)
        with healthy_sender(server, every=0.02) as sender:
            server.process.send_signal(19)  # SIGSTOP
            with Wire(server.port, timeout=1.5) as wire, pytest.raises(TimeoutError):
                wire.send(request()).read()
            server.process.send_signal(18)  # SIGCONT
            assert server.get("/health").status == 200

        assert (
            longest_stall(stalls) < STALL_SECONDS
        )  # a stopped process computes nothing, so this is no stall
    assert set(sender.report.statuses) == {202}
    assert sender.report.p99 > 1
