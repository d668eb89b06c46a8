"""Which rows a claim takes: oldest due first, fair between sources, no suspects."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ackbox.model import Caps, Claim, EventId, from_text
from ackbox.stores.sqlite.statements import Statements

_INLINE_BYTES = 65_536

Source = tuple[str, str, list[int]]
"""A source with something claimable: when its first is, and what is due now."""


class ClaimSelection:
    """`next_due` is the first moment after now at which something becomes claimable."""

    def __init__(self, sql: Statements, now: str) -> None:
        self._sql = sql
        self._now = now
        self.next_due: datetime | None = None

    def take(self, limit: int, caps: Caps) -> list[int]:
        sources = self._sql.fetch("claimable", now=self._now, limit=limit)
        self._note_next(sources)
        return self._share([source for source in sources if source[2]], limit, caps)

    def take_among(self, ids: Sequence[EventId], limit: int) -> list[int]:
        rows: list[int] = self._sql.fetch(
            "claimable_among", ids=list(ids), now=self._now, limit=limit
        )
        return rows

    def take_suspect(self, event_id: EventId) -> list[int]:
        rows: list[int] = self._sql.fetch("claimable_suspect", id=event_id, now=self._now)
        return rows

    def _share(self, due: list[Source], limit: int, caps: Caps) -> list[int]:
        """Whose oldest has waited longest goes first; with others waiting, none takes all."""
        picked: list[int] = []
        for source, _, rows in sorted(due, key=lambda source: source[1]):
            most = caps.share if len(due) > 1 else caps.alone
            room = limit - len(picked)
            if most is not None:
                room = min(room, most - caps.held.get(source, 0))
            picked += rows[: max(room, 0)]
        return picked

    def _note_next(self, sources: Sequence[Source]) -> None:
        later = [head for _, head, _ in sources if head > self._now]
        self.next_due = from_text(min(later)) if later else None


def read_claims(sql: Statements, picked: list[int]) -> list[Claim]:
    rows = sql.fetch("claimed", picked=picked, inline=_INLINE_BYTES)
    return [_claim(row, sql) for row in rows]


def _claim(row: Sequence[Any], sql: Statements) -> Claim:
    fields = dict(zip(Claim.__struct_fields__, row, strict=True))
    payload, emitted = fields["payload"], fields["source_emitted_at"]
    fields["payload"] = _large(sql, row[0]) if payload is None else bytes.fromhex(payload)
    fields["source_emitted_at"] = emitted and from_text(emitted)
    fields["created_at"] = from_text(fields["created_at"])
    fields["replayed_at"] = fields["replayed_at"] and from_text(fields["replayed_at"])
    return Claim(**fields)


def _large(sql: Statements, ledger_id: int) -> bytes:
    """Fetched on its own: in hex, a large payload would stand in memory twice more."""
    payload: bytes = sql.run("large_payload", ledger_id=ledger_id).get
    return payload
