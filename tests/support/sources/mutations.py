"""Changes to a signed delivery, each of which must be refused (F46)."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from ackbox.model import InboundRequest
from support.sources.samples import Sample, with_header

Mutation = tuple[str, InboundRequest]


def mutations(sample: Sample) -> Iterator[Mutation]:
    """Yield at least thirty requests that differ from the sample and must be refused."""
    sent = sample.request
    if sample.signature:
        yield from _header_mutations(sent, sample.signature)
    if sample.time:
        yield from _time_mutations(sent, sample.time)
    for part in sample.covers:
        match part:
            case "body":
                yield from _body_mutations(sent)
            case "url":
                yield from _url_mutations(sent)
            case name:
                yield from _covered_header_mutations(sent, name)
    yield from sample.mutations


def out_of_time(sample: Sample) -> Iterator[Mutation]:
    """Yield the sample as it arrives one second too late, and one too early."""
    yield from _shifted(sample, sample.settings.tolerance + timedelta(seconds=1))


def just_in_time(sample: Sample) -> Iterator[Mutation]:
    """Yield the sample as it arrives at the first and the last second of its window."""
    yield from _shifted(sample, sample.settings.tolerance)


def _shifted(sample: Sample, by: timedelta) -> Iterator[Mutation]:
    arrival = sample.request.received_at
    yield "late", replace(sample.request, received_at=arrival + by)
    yield "early", replace(sample.request, received_at=arrival - by)


def _header_mutations(sent: InboundRequest, name: str) -> Iterator[Mutation]:
    value = sent.header(name) or ""
    yield f"{name} missing", with_header(sent, name)
    yield f"{name} twice", with_header(sent, name, value, value)
    yield f"{name} after another", with_header(sent, name, "x", value)
    yield f"{name} before another", with_header(sent, name, value, "")
    for what, changed in changed_texts(value):
        yield f"{name} {what}", with_header(sent, name, changed)


def changed_texts(value: str) -> Iterator[tuple[str, str]]:
    """Yield texts that differ from a signature or token."""
    middle = len(value) // 2
    changed = {
        "empty": "",
        "shorter": value[:-1],
        "shorter by its first character": value[1:],
        "longer": value + "0",
        "longer by a first character": "0" + value,
        "reversed": value[::-1],
        "halved": value[:middle],
        "in capital letters": value.upper(),
        "in small letters": value.lower(),
        "with a blank inside": f"{value[:-3]} {value[-3:]}",
        "with a NUL": value + "\0",
        "with a line break": value + "\n",
        "with a letter that is not ASCII": value[:-1] + "\u00e9",
        "with a digit that is not ASCII": value[:-1] + "\u0661",
        "with a lone surrogate": value[:-1] + "\udc80",
        "quoted": f'"{value}"',
        "percent-encoded": "".join(f"%{ord(character):02X}" for character in value),
        "huge": "A" * 65_536,
        "null": "null",
        "only punctuation": ",=;.:",
    }
    yield from ((what, text) for what, text in changed.items() if text != value)
    for place in range(0, len(value), max(1, len(value) // 8)):
        other = "0" if value[place] != "0" else "1"
        yield f"changed at {place}", value[:place] + other + value[place + 1 :]


def _time_mutations(sent: InboundRequest, name: str) -> Iterator[Mutation]:
    value = sent.header(name) or ""
    yield f"{name} missing", with_header(sent, name)
    yield f"{name} twice", with_header(sent, name, value, value)
    texts = (
        "",
        "nan",
        "inf",
        "1_0",
        f"+{value}",
        f"-{value}",
        f"{value}.5",
        f" {value} ",
        "\u0661",
    )
    for text in (*texts, f"0{value}", str(int(value) + 1), str(int(value) - 1), "9" * 400):
        yield f"{name} as {text[:20]!r}", with_header(sent, name, text)


def _covered_header_mutations(sent: InboundRequest, name: str) -> Iterator[Mutation]:
    value = sent.header(name) or ""
    yield f"{name} missing", with_header(sent, name)
    yield f"{name} twice", with_header(sent, name, value, value)
    for text in ("", value + "0", value[:-1], value.swapcase(), f"{value}.1"):
        if text != value:
            yield f"{name} as {text!r}", with_header(sent, name, text)


def _body_mutations(sent: InboundRequest) -> Iterator[Mutation]:
    body = sent.body
    changed = {
        "empty": b"",
        "with a line break": body + b"\n",
        "with a blank first": b" " + body,
        "with a byte order mark": b"\xef\xbb\xbf" + body,
        "without its last byte": body[:-1],
        "without its first byte": body[1:],
        "doubled": body + body,
        "with a first bit changed": bytes([body[0] ^ 1]) + body[1:],
        "with a last bit changed": body[:-1] + bytes([body[-1] ^ 1]),
        "with a NUL": body + b"\0",
    }
    for what, other in changed.items():
        yield f"body {what}", replace(sent, body=other)


def _url_mutations(sent: InboundRequest) -> Iterator[Mutation]:
    mark = "&" if "?" in sent.url else "?"
    yield "URL with a further parameter", replace(sent, url=f"{sent.url}{mark}a=1")
    if "?" in sent.url:
        yield "URL without its query", replace(sent, url=sent.url.partition("?")[0])
