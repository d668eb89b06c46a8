"""Deliveries as the senders sign them, over HTTP, to a server with a source for each of them."""

from collections.abc import Iterator

import pytest

from ackbox.sources.presets import PRESETS
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
def test_every_sender_gets_its_response_and_its_event_names_the_preset(receiver: Server) -> None:
    with Wire(receiver.port) as wire:
        sent = [send(wire, at, signed_now(sample).request) for at, sample in enumerate(SIGNABLE)]
    expected = [PRESETS[sample.preset].acknowledgement for sample in SIGNABLE]
    assert [response.status for response in sent] == [response.status for response in expected]
    assert [response.body for response in sent if not response.body.startswith(b"{")] == [
        response.body for response in expected if response.body is not None
    ]
    sql = "SELECT source, verified_by FROM events"
    verified = dict(read_ledger(receiver.ledger, sql))
    assert verified == {f"sample-{at}": sample.preset for at, sample in enumerate(SIGNABLE)}


# F46
def test_a_forged_delivery_gets_401_and_stores_nothing(receiver: Server) -> None:
    before = count_events(receiver)
    statuses = fuzz_over_http(receiver, SIGNABLE, cases=400, seed=46)
    assert set(statuses) == {200, 202, 401}
    assert statuses[401] > 200
    assert count_events(receiver) - before <= statuses[200] + statuses[202]


def count_events(server: Server) -> int:
    ((count,),) = read_ledger(server.ledger, "SELECT count(*) FROM events")
    return int(count)
