"""Attacks on connections at their full size, beside a healthy sender (F55, F57)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.http.attacks import (
    ReusedConnection,
    closing_trailer,
    endless_trailer,
    half_close_at_random,
    many_trailers,
    one_byte_chunks,
)
from support.http.capacity import STALLED, one_byte_short, waves
from support.http.healthy_sender import healthy_sender
from support.http.posting import posted
from support.http.wire import request
from support.servers.loop_stalls import STALL_SECONDS, longest_stall, reset_stalls
from support.servers.server import Server, running
from support.time.polling import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
TOKEN = "a-token-of-senders"
GOOD = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def stalls(tmp_path: Path) -> Path:
    return tmp_path / "stalls"


@pytest.fixture
def guarded(tmp_path: Path, stalls: Path) -> Iterator[Server]:
    settings = {"INGEST_TOKEN": TOKEN, "LOG_LEVEL": "WARNING"}
    with running(tmp_path, settings, {"stalls": str(stalls)}) as server:
        reset_stalls(stalls)
        yield server


def test_100_mib_of_trailers_cost_others_nothing(guarded: Server, stalls: Path) -> None:  # S4, F55
    with healthy_sender(guarded, token=TOKEN) as sender, ThreadPoolExecutor() as threads:
        others = [
            threads.submit(attack, guarded, 50) for attack in (many_trailers, one_byte_chunks)
        ]
        for _ in waves(seconds=5):
            endless_trailer(guarded, body_mib=8, trailer_mib=100)
        for attack in others:
            attack.result()

    sender.report.assert_unharmed(at_least=200)
    assert longest_stall(stalls) < STALL_SECONDS


@pytest.mark.parametrize("kind", STALLED)
def test_bodies_that_stop_one_byte_short_are_gone_in_time(  # S3, F55
    guarded: Server, stalls: Path, kind: str
) -> None:
    """However fast the other bytes came, the limit is ten seconds, and up to one for the sweep."""
    count, data = STALLED[kind]
    data = data.replace(b"\r\n", f"\r\nAuthorization: {GOOD['Authorization']}\r\n".encode(), 1)
    with healthy_sender(guarded, token=TOKEN) as sender:
        with one_byte_short(guarded, data, count=count) as wires:
            assert all(wire.is_closed(within=15) for wire in wires)
        eventually(lambda: guarded.metric("ackbox_buffer_bytes") == 0, within=15)

    sender.report.assert_unharmed(at_least=200)
    assert longest_stall(stalls) < STALL_SECONDS


def test_connections_that_a_proxy_shares_are_never_silent(  # C1, C4, F57
    guarded: Server, stalls: Path
) -> None:
    """Send hostile and honest requests by turns on the same connections, like a proxy that shares
    connections between its clients. Every honest request gets its 202."""
    with healthy_sender(guarded, token=TOKEN) as sender, ThreadPoolExecutor(10) as threads:
        clients = [threads.submit(share_a_connection, guarded) for _ in range(8)]
        clients += [threads.submit(half_close_at_random, guarded, 300, seed) for seed in range(2)]
        for client in clients:
            client.result()

    sender.report.assert_unharmed()
    assert longest_stall(stalls) < STALL_SECONDS


def share_a_connection(server: Server) -> None:
    with ReusedConnection(server) as connection:
        for headers in [GOOD, {}] * 100:
            connection.send(closing_trailer(headers) + closing_trailer(headers))
            assert connection.send(request("POST", "/webhooks", posted(), GOOD)) == 202
