"""Deliveries as the senders sign them, over HTTP, to a server with a source for each of them."""

from collections.abc import Iterator

import pytest

from support.http.wire import Wire
from support.servers.server import Server, read_ledger
from support.sources.every_sample import SIGNABLE
from support.sources.receiver import fuzz_over_http, receiving, send, signed_now


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with receiving(tmp_path_factory.mktemp("senders"), SIGNABLE) as server:
        yield server
        assert "Traceback" not in server.log


# P2
def test_every_sender_gets_202_and_its_event_names_the_preset(receiver: Server) -> None:
    with Wire(receiver.port) as wire:
        sent = [send(wire, at, signed_now(sample).request) for at, sample in enumerate(SIGNABLE)]
    assert [response.status for response in sent] == [202] * len(SIGNABLE)
    sql = "SELECT verified_by FROM events WHERE id = ?"
    presets = [read_ledger(receiver.ledger, sql, item.json()["id"])[0][0] for item in sent]
    assert presets == [sample.preset for sample in SIGNABLE]


# F46
def test_a_forged_delivery_gets_401_and_stores_nothing(receiver: Server) -> None:
    before = count_events(receiver)
    statuses = fuzz_over_http(receiver, SIGNABLE, cases=400, seed=46)
    assert set(statuses) == {202, 401}
    assert statuses[401] > 200
    assert count_events(receiver) - before <= statuses[202]


def count_events(server: Server) -> int:
    ((count,),) = read_ledger(server.ledger, "SELECT count(*) FROM events")
    return int(count)
