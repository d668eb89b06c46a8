"""Deliveries as the senders sign them, over HTTP, to a server with a source for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackbox.forms import URLENCODED
from ackbox.model import InboundRequest
from ackbox.sources.presets import PRESETS
from support.http.wire import Wire
from support.servers.server import Server, read_ledger
from support.sources.every_sample import SIGNABLE
from support.sources.receiver import fuzz_over_http, receiving, send, signed_now
from support.sources.samples import Sample, with_header


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


# F47
def test_a_captured_delivery_with_other_unsigned_headers_is_no_new_event(tmp_path: Path) -> None:
    """Senders that sign nothing are left out: whoever saw their token can send anything."""
    signed = [(at, signed_now(item)) for at, item in enumerate(SIGNABLE) if "body" in item.covers]
    with receiving(tmp_path, SIGNABLE) as server, Wire(server.port) as wire:
        sent = [send(wire, at, sample.request).status for at, sample in signed]
        before = count_events(server)
        replayed = [send(wire, at, with_other_headers(sample)).status for at, sample in signed]
        assert set(sent) == {200, 202}
        assert set(replayed) == {200, 202}
        assert count_events(server) == before


def count_events(server: Server) -> int:
    ((count,),) = read_ledger(server.ledger, "SELECT count(*) FROM events")
    return int(count)


def with_other_headers(sample: Sample) -> InboundRequest:
    """Return the delivery with every header changed that its signature does not cover."""
    signed = {sample.signature, sample.time, *sample.covers}
    names = {name for name, _ in sample.request.headers} | {"idempotency-key", "user-agent"}
    replayed = sample.request
    for name in names - signed:
        replayed = with_header(replayed, name, "other")
    return with_header(replayed, "content-type", URLENCODED)
