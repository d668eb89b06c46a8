"""A server with one source for each sample, and random deliveries to it over HTTP."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from msgspec.structs import replace

from ackbox.model import InboundRequest
from support.http.wire import Response, Wire
from support.servers.server import Server
from support.sources.fuzz import change, is_genuine
from support.sources.samples import Sample


@contextmanager
def receiving(folder: Path, samples: tuple[Sample, ...]) -> Iterator[Server]:
    """Start a server whose sources are named by the position of their samples."""
    secrets = {f"SECRET_{at}": sample.settings.secrets[0] for at, sample in enumerate(samples)}
    (folder / "ackbox.toml").write_text("\n".join(map(_table, range(len(samples)), samples)))
    server = Server(folder, {name: secret.decode() for name, secret in secrets.items()})
    try:
        yield server.wait_until_ready()
    finally:
        if server.process.poll() is None:
            server.kill()


def signed_now(sample: Sample) -> Sample:
    """Return the sample with a signature of this moment: a real server has a real clock."""
    bare = replace(sample.request, received_at=datetime.now(UTC))
    return dataclasses.replace(sample, request=sample.scheme.sign(bare))


def fuzz_over_http(
    server: Server, samples: tuple[Sample, ...], cases: int, seed: int
) -> Counter[int]:
    """Send changed deliveries, and return how often each status occurred. A delivery that was
    accepted although it was forged is an AssertionError that names it."""
    random = Random(seed)
    statuses: Counter[int] = Counter()
    while sum(statuses.values()) < cases:
        with Wire(server.port) as wire:
            for at, sample in enumerate(map(signed_now, samples)):
                sent = _sendable(sample, change(random, sample))
                status = send(wire, at, sent).status
                assert status == 401 or is_genuine(sample, sent), f"seed {seed}, {sample}: {sent!r}"
                statuses[status] += 1
    return statuses


def send(wire: Wire, at: int, sent: InboundRequest) -> Response:
    _, mark, query = sent.url.partition("?")
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.headers)
    head = f"POST /in/sample-{at}{mark}{query} HTTP/1.1\r\nHost: localhost\r\n{lines}"
    length = f"Content-Length: {len(sent.body)}\r\n\r\n"
    return wire.send((head + length).encode("latin-1") + sent.body).read()


def _sendable(sample: Sample, sent: InboundRequest) -> InboundRequest:
    """Return what arrives of a request: HTTP has no control characters in headers, and no blanks
    around a value."""
    headers = tuple(
        (name, "".join(c for c in value if " " <= c <= "~" or "\xa0" <= c <= "\xff").strip()[:2000])
        for name, value in sent.headers
    )
    return replace(sent, headers=headers, received_at=sample.request.received_at)


def _table(at: int, sample: Sample) -> str:
    words = {"preset": sample.preset, "secret": f"env:SECRET_{at}", **sample.settings.options}
    if sample.settings.public_url:
        words["public_url"] = sample.settings.public_url
    lines = (f"{word} = {json.dumps(value)}" for word, value in words.items())
    return "\n".join([f"[sources.sample-{at}]", *lines])
