"""Read requests that failed verification."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ackbox.model import (
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantinePage,
    QuarantineUsage,
)
from ackbox.stores.quarantine import page_terms, read_page, read_request, read_usage
from ackbox.stores.sqlite.statements import Statements

Row = dict[str, Any]
ReadRows = Callable[[Callable[[Statements], list[Row]]], Awaitable[list[Row]]]
"""Runs a function on a connection of the reader."""


class SqliteQuarantineReader:
    """Implements `QuarantineReader`."""

    def __init__(self, read: ReadRows) -> None:
        self._read = read

    async def page(
        self, where: QuarantineFilter, *, limit: int, cursor: QuarantineId | None = None
    ) -> QuarantinePage:
        terms = page_terms(where, cursor)
        rows = await self._read(lambda sql: sql.rows("quarantine_page", **terms, limit=limit + 1))
        return read_page(rows, limit)

    async def requests(self, ids: Sequence[QuarantineId]) -> list[QuarantinedRequest]:
        rows = await self._read(lambda sql: sql.rows("quarantined_requests", ids=list(ids)))
        return [read_request(row) for row in rows]

    async def usage(self) -> dict[str, QuarantineUsage]:
        return read_usage(await self._read(lambda sql: sql.rows("quarantine_usage")))
