"""Retention on the writer thread: first write a tombstone, delete the row later (W11).

Retention has two steps because PostgreSQL needs them. With a single step, an insert that waits for
the delete would find neither the row nor the tombstone. On SQLite this cannot happen, because there
is one writer. Each operation is short, however many rows there are, because acknowledgements wait
until it ends (F36)."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from ackbox.model import PruneResult, PurgeResult, RetentionPolicy, Status, TombstonePass, to_text
from ackbox.stores.fingerprints import WINDOW
from ackbox.stores.sqlite.statements import Statements

_ROWS = 1000
_SCAN_ROWS = 250
_BUDGET_SECONDS = 0.003
# The work between two checks of the time. To free a large payload, SQLite visits all of its pages,
# so bytes count as well as rows.
_CHUNK_ROWS = 20
_CHUNK_BYTES = 1 << 20
_PAGES = 128
SPARE_PAGES = 1024
"""Free pages that stay in the file: new events use them soon, so returning them would be
useless."""

Prunable = tuple[str, str, int, int]
"""Source, key, row number and payload size of an event that may be deleted."""


def add_tombstones(
    sql: Statements, policy: RetentionPolicy, status: Status, after: int, now: datetime
) -> TombstonePass:
    """Write tombstones for old events after the row `after`. Rows are nearly in the order of time,
    so the pass ends with the first batch that has no old row. Rows that a wrong clock dated into
    the future do not end it."""
    end = monotonic() + _BUDGET_SECONDS
    limits = {
        "created_before": _ago(now, policy.keep_of(status)),
        "finished_before": _ago(now, policy.keep_after_end),
        "now": to_text(now),
    }
    last, anything_old, rows = sql.fetch(
        f"old_events_{status}", after=after, limit=_SCAN_ROWS, **limits
    )
    tombstoned = 0
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        sql.run("add_tombstones", rows=chunk, now=limits["now"])
        tombstoned += sql.connection.changes()
        if monotonic() > end:
            return TombstonePass(tombstoned, chunk[-1])
    return TombstonePass(tombstoned, last if anything_old else None)


def prune(sql: Statements, policy: RetentionPolicy, now: datetime) -> PruneResult:
    end = monotonic() + _BUDGET_SECONDS
    prunable = sql.fetch(
        "prunable", tombstoned_before=_ago(now, policy.delete_delay), limit=_SCAN_ROWS
    )
    rows = 0
    for chunk in _chunks(prunable):
        rows += _prune_chunk(sql, chunk, to_text(now))
        if monotonic() > end:
            break
    return PruneResult(rows, more=bool(prunable), waiting=bool(sql.fetch("tombstones_open")))


def purge(sql: Statements, policy: RetentionPolicy, now: datetime) -> PurgeResult:
    sql.run("purge_tombstones", tombstoned_before=_ago(now, policy.keep_keys), limit=_ROWS)
    if tombstones := sql.connection.changes():
        return PurgeResult(tombstones, 0)
    sql.run("prune_audit", before=_ago(now, policy.keep), limit=_ROWS)
    return PurgeResult(0, sql.connection.changes())


def prune_fingerprints(sql: Statements, now: datetime) -> int:
    sql.run("prune_fingerprints", before=_ago(now, WINDOW), limit=_ROWS)
    return sql.connection.changes()


def reclaim_space(sql: Statements, spare_pages: int = SPARE_PAGES) -> int:
    """Return a few free pages to the file system, but keep the spare pages. Return how many."""
    connection = sql.connection
    free = int(connection.pragma("freelist_count"))
    pages = min(free - spare_pages, _PAGES)
    if pages <= 0:
        return 0
    connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()  # each row is a page
    return free - int(connection.pragma("freelist_count"))


def _prune_chunk(sql: Statements, chunk: Sequence[Prunable], now: str) -> int:
    """Delete the events. Keep an event that changed after its tombstone was written, and delete the
    tombstone instead."""
    sql.run("prune", prunable=chunk)
    rows = sql.connection.changes()
    sql.run("close_tombstones", prunable=chunk, now=now)
    if sql.connection.changes() < len(chunk):
        sql.run("drop_tombstones", keys=chunk)
    return rows


def _chunks(prunable: Sequence[Any]) -> Iterator[list[Prunable]]:
    chunk: list[Prunable] = []
    size = 0
    for row in prunable:
        if chunk and (len(chunk) == _CHUNK_ROWS or size + row[3] > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row[3]
    if chunk:
        yield chunk


def _ago(now: datetime, span: timedelta) -> str:
    return to_text(now - span)
