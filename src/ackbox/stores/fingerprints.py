"""Decisions about fingerprints that both stores share.

If a sender does not sign the key, a captured request can be sent again under another key. An event
of the same source with the same signed bytes is then a duplicate for 24 hours (F47). These bytes
are mostly the payload: the column with their SHA-256 is therefore called `payload_sha256`.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import attrgetter

from msgspec.structs import replace

from ackbox.model import Envelope

WINDOW = timedelta(hours=24)
HAS_FINGERPRINT = attrgetter("fingerprint")

Known = tuple[bool, str | None]
"""Whether the key of an envelope is known, and the key of the event with its fingerprint."""


def absorb(
    envelopes: Sequence[Envelope], known: Iterable[Known]
) -> tuple[list[Envelope], list[Envelope]]:
    """Return the envelopes, and those whose fingerprints are new. An envelope with a new key and a
    known fingerprint gets the key of the event that has this fingerprint, so that it is recorded as
    a duplicate of that event, or as a conflict if the payload is another one. `known` belongs to
    the envelopes with fingerprints, in their order."""
    keys: set[tuple[str, str]] = set()
    first_keys: dict[tuple[str, bytes | None], str] = {}
    answers = iter(known)
    absorbed: list[Envelope] = []
    fresh: list[Envelope] = []
    for envelope in envelopes:
        key, signed = _key(envelope), (envelope.source, envelope.fingerprint)
        is_known, stored = next(answers) if envelope.fingerprint else (True, None)
        first = first_keys.get(signed, stored)
        if is_known or key in keys:
            absorbed.append(envelope)
        elif first is not None:
            absorbed.append(replace(envelope, idempotency_key=first))
        else:
            first_keys[signed] = envelope.idempotency_key
            fresh.append(envelope)
            absorbed.append(envelope)
        keys.add(_key(absorbed[-1]))
    return absorbed, fresh


def _key(envelope: Envelope) -> tuple[str, str]:
    return envelope.source, envelope.idempotency_key
