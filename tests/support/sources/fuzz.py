"""Random changes to signed deliveries: none may raise, and none may forge a delivery (F46)."""

import re
from collections.abc import Callable
from datetime import timedelta
from random import Random

from msgspec.structs import replace

from ackbox.model import Accepted, Handshake, InboundRequest, Refusal
from ackbox.sources.declaration import declare
from ackbox.sources.webhook import SignedWebhook
from support.sources.samples import Sample, with_header

Change = Callable[[Random, Sample, InboundRequest], InboundRequest]
HOSTILE = (
    *("", " ", "\0", ",", "=", ".", ";", ":", "%", "nan", "inf", "-1", "1_0", "0x10", "1e9"),
    *("\xb2", "\xe9", "\xff" * 50, "sha256=", "sha1=", "v0=", "v1=", "v1,", "v1a,", "t=", "Basic "),
    *("=" * 100, "v1, " * 100, "t=1," * 100, "9" * 5000, "A" * 20_000),
)
NAMES = ("content-type", "idempotency-key", "webhook-id", "svix-id", "authorization", "accept")


def fuzz(samples: tuple[Sample, ...], cases: int, seed: int) -> dict[str, int]:
    """Let sources receive `cases` changed deliveries, and return how often each result occurred. A
    result that must not occur is an AssertionError that names the seed and the request."""
    random = Random(seed)
    sources = [(sample, make_source(sample)) for sample in samples]
    counts: dict[str, int] = {}
    for case in range(cases):
        sample, source = sources[case % len(sources)]
        sent = change(random, sample)
        result = source.receive(sent)
        assert _is_allowed(sample, sent, result), f"seed {seed}, case {case}, {sample}: {sent!r}"
        name = f"{result.status} {result.reason}" if isinstance(result, Refusal) else "accepted"
        counts[name] = counts.get(name, 0) + 1
    return counts


def make_source(sample: Sample) -> SignedWebhook:
    settings = sample.settings
    words: dict[str, object] = {"preset": sample.preset, "secret": "env:SECRET", **settings.options}
    if settings.public_url:
        words["public_url"] = settings.public_url
    declaration = declare("sample", words, "a test")
    return SignedWebhook(declaration, settings.secrets, Random(0).getrandbits)


def change(random: Random, sample: Sample) -> InboundRequest:
    sent = sample.request
    for _ in range(random.randint(1, 3)):
        sent = random.choice(CHANGES)(random, sample, sent)
    return sent


def _is_allowed(
    sample: Sample, sent: InboundRequest, result: Accepted | Refusal | Handshake
) -> bool:
    if isinstance(result, Refusal):
        return result.status == 401
    return isinstance(result, Accepted) and is_genuine(sample, sent)


def is_genuine(sample: Sample, sent: InboundRequest) -> bool:
    """Tell whether all that the sender signed, and its signature, are as the sender sent them."""
    away = abs(sent.received_at - sample.request.received_at)
    in_time = not sample.timed or away <= sample.settings.tolerance
    return (
        in_time
        and _signature(sample, sample.request) in (sent.header(sample.signature or "") or "")
        and _signed_parts(sample, sent) == _signed_parts(sample, sample.request)
    )


def _signature(sample: Sample, sent: InboundRequest) -> str:
    """Return the longest word of the header: the signature without its version and its time."""
    return max(re.split(r"[ ,;=]", sent.header(sample.signature or "") or ""), key=len)


def _signed_parts(sample: Sample, sent: InboundRequest) -> list[object]:
    if sample.covered:
        return [sample.covered(sent)]
    parts = {"body": sent.body, "url": sent.url}
    names = (*sample.covers, *filter(None, [sample.time]))
    return [parts.get(name) or sent.headers_named(name) for name in names]


def _change_header(random: Random, sample: Sample, sent: InboundRequest) -> InboundRequest:
    """Change one of the headers that the scheme reads, or add one that another scheme reads."""
    covered = [part for part in sample.covers if part not in {"body", "url"}]
    read = [name for name in (sample.signature, sample.time, *covered) if name]
    name = random.choice([*read, *read, *NAMES])
    value = sent.header(name) or ""
    changed = _change_text(random, value)
    shapes = ((), (changed,), (changed,), (changed,), (value, value), (changed, value))
    return with_header(sent, name, *random.choice(shapes))


def _change_text(random: Random, value: str) -> str:
    """Replace a random piece, which may be empty, by another one."""
    start = random.randint(0, len(value))
    end = random.randint(start, min(len(value), start + random.choice((0, 1, 1, 8, 1000))))
    noise = random.randbytes(random.randint(0, 8)).decode("latin-1")
    piece = random.choice((noise, noise, value[:8], random.choice(HOSTILE)))
    return value[:start] + piece + value[end:]


def _change_body(random: Random, _: Sample, sent: InboundRequest) -> InboundRequest:
    return replace(sent, body=_change_text(random, sent.body.decode("latin-1")).encode("latin-1"))


def _change_arrival(random: Random, sample: Sample, sent: InboundRequest) -> InboundRequest:
    window = sample.settings.tolerance
    away = random.choice((timedelta(0), timedelta(seconds=1), timedelta(days=400)))
    shift = random.choice((window + away, -window - away))
    return replace(sent, received_at=sent.received_at + shift)


CHANGES: tuple[Change, ...] = (_change_header, _change_header, _change_body, _change_arrival)
