"""Large events from many connections at once."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from support.posting import new_key
from support.server import Server
from support.wire import Wire, request

MIB = 1024 * 1024


def flood(server: Server, *, events: int, connections: int, size: int = 1_000_000) -> Counter[int]:
    """Return how often each status was the response."""
    each = events // connections
    with ThreadPoolExecutor(connections) as threads:
        counts = threads.map(lambda _: _post_many(server, each, size), range(connections))
        return sum(counts, Counter[int]())


def _post_many(server: Server, events: int, size: int) -> Counter[int]:
    statuses = Counter[int]()
    filler = b"x" * size
    with Wire(server.port, timeout=60) as wire:
        for _ in range(events):
            body = b'{"idempotency_key":"%s","payload":"%s"}' % (new_key().encode(), filler)
            statuses[wire.send(request("POST", "/webhooks", body)).read().status] += 1
    return statuses
