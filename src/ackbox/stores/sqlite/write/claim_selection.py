"""Selects the rows to claim: oldest due first, fairly between sources, and no suspects."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ackbox.model import Caps, Claim, EventId, from_text
from ackbox.stores.sqlite.statements import Statements

_INLINE_BYTES = 65_536

Source = tuple[str, str, list[int]]
"""A source with claimable events: its name, the earliest `claimable_at`, and the rows due now."""


class ClaimSelection:
    """Selects rows. `next_due` is the first moment after now at which an event becomes
    claimable."""

    def __init__(self, sql: Statements, now: str) -> None:
        self._sql = sql
        self._now = now
        self.next_due: datetime | None = None

    def select(self, limit: int, caps: Caps) -> list[int]:
        sources = self._sql.fetch("claimable", now=self._now, limit=limit)
        self._note_next(sources)
        return self._share([source for source in sources if source[2]], limit, caps)

    def select_among(self, ids: Sequence[EventId], limit: int) -> list[int]:
        rows: list[int] = self._sql.fetch(
            "claimable_among", ids=list(ids), now=self._now, limit=limit
        )
        return rows

    def select_suspect(self, event_id: EventId) -> list[int]:
        rows: list[int] = self._sql.fetch("claimable_suspect", id=event_id, now=self._now)
        return rows

    def _share(self, due: list[Source], limit: int, caps: Caps) -> list[int]:
        """Share the limit: the source whose oldest event waits longest comes first. While other
        sources wait, a source gets at most its share."""
        selected: list[int] = []
        for source, _, rows in sorted(due, key=lambda source: source[1]):
            cap = caps.share if len(due) > 1 else caps.alone
            free = limit - len(selected)
            if cap is not None:
                free = min(free, cap - caps.held.get(source, 0))
            selected += rows[: max(free, 0)]
        return selected

    def _note_next(self, sources: Sequence[Source]) -> None:
        later = [head for _, head, _ in sources if head > self._now]
        self.next_due = from_text(min(later)) if later else None


def read_claims(sql: Statements, selected: list[int]) -> list[Claim]:
    rows = sql.fetch("claimed", selected=selected, inline=_INLINE_BYTES)
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
    """Fetch a large payload separately: as hex in JSON it would need twice as much memory again."""
    payload: bytes = sql.run("large_payload", ledger_id=ledger_id).get
    return payload
