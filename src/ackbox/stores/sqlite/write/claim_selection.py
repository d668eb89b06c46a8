"""Selects the rows to claim: oldest due first, fairly between sources, and no suspects."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ackbox.model import Caps, Claim, EventId, from_text
from ackbox.stores.columns import EVENT_COLUMNS, Kind
from ackbox.stores.sqlite.statements import Statements

_INLINE_BYTES = 65_536
_FIELDS = Claim.__struct_fields__  # `claimed` returns its columns in this order
_TIMES = [index for index, name in enumerate(_FIELDS) if EVENT_COLUMNS[name] is Kind.TIME]
_LEDGER_ID, _PAYLOAD = _FIELDS.index("ledger_id"), _FIELDS.index("payload")

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


def _claim(row: list[Any], sql: Statements) -> Claim:
    for index in _TIMES:
        if row[index] is not None:
            row[index] = from_text(row[index])
    payload = row[_PAYLOAD]
    row[_PAYLOAD] = _large(sql, row[_LEDGER_ID]) if payload is None else bytes.fromhex(payload)
    return Claim(*row)


def _large(sql: Statements, ledger_id: int) -> bytes:
    """Fetch a large payload separately: as hex in JSON it would need twice as much memory again."""
    payload: bytes = sql.run("large_payload", ledger_id=ledger_id).get
    return payload
