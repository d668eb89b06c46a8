"""Requests that never end do not hold resources that a healthy sender needs (F55)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http.capacity import (
    NEWLINES,
    STALLED,
    first_responded,
    hang_up_after,
    one_byte_short,
    wait_for_events,
)
from support.http.deliveries import OPEN_SOURCE
from support.http.healthy_sender import healthy_sender
from support.http.posting import posted
from support.http.problems import assert_problem
from support.servers.loop_stalls import STALL_SECONDS, longest_stall, reset_stalls
from support.servers.server import FAST_MONITOR, Server, running
from support.time.polling import eventually

pytestmark = pytest.mark.serial


@pytest.fixture(scope="module")
def stalls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stalls") / "stalls"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, stalls: Path) -> Iterator[Server]:
    settings = {"LOG_LEVEL": "WARNING", "QUEUE_MAXSIZE": "1000000"}
    patches = {"set": FAST_MONITOR, "stalls": str(stalls)}
    folder = tmp_path_factory.mktemp("busy")
    (folder / "ackbox.toml").write_text(OPEN_SOURCE)
    with running(folder, settings, patches) as server:
        yield server


@pytest.fixture(autouse=True)
def unstalled(busy: Server, stalls: Path) -> Iterator[None]:
    """No attack may stall the event loop."""
    reset_stalls(stalls)
    yield
    assert longest_stall(stalls) < STALL_SECONDS


def test_newline_batches_of_disconnected_clients_delay_no_sender(busy: Server) -> None:
    with healthy_sender(busy) as sender:  # S2, F55
        for _ in range(3):
            hang_up_after(busy, NEWLINES, count=4)
        wait_for_events(busy, 60)
        eventually(lambda: busy.metric("ackbox_buffer_bytes") == 0, within=5)

    sender.report.assert_unharmed()


@pytest.mark.parametrize("kind", STALLED)
def test_bodies_that_stop_one_byte_short_lose_their_bytes(busy: Server, kind: str) -> None:
    count, data = STALLED[kind]
    with healthy_sender(busy) as sender:  # S3, F55
        with one_byte_short(busy, data, count=count) as wires:
            dropped = first_responded(wires, within=5)
            assert "slowest" in assert_problem(dropped.read(), 408)
            assert busy.post(posted(payload="x" * 1_000_000)).status == 202
            wait_for_events(busy, 60)
        eventually(lambda: busy.metric("ackbox_buffer_bytes") == 0, within=5)

    sender.report.assert_unharmed()
    assert busy.metric('ackbox_events_refused_total{reason="slow_body"}') > 0
    assert busy.metric('ackbox_events_refused_total{reason="buffer_bytes"}') == 0
