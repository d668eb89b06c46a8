"""Read requests that failed verification."""

from collections.abc import Sequence

from ackbox.model import (
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantinePage,
    QuarantineUsage,
)
from ackbox.stores.postgres.database import Database
from ackbox.stores.quarantine import page_terms, read_page, read_request, read_usage


class PostgresQuarantineReader:
    """Implements `QuarantineReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, where: QuarantineFilter, *, limit: int, cursor: QuarantineId | None = None
    ) -> QuarantinePage:
        async with self._database.reading() as session:
            terms = page_terms(where, cursor)
            rows = await session.fetch("quarantine_page", **terms, limit=limit + 1)
        return read_page(map(dict, rows), limit)

    async def requests(self, ids: Sequence[QuarantineId]) -> list[QuarantinedRequest]:
        async with self._database.reading() as session:
            rows = await session.fetch("quarantined_requests", ids=list(ids))
        return [read_request(dict(row)) for row in rows]

    async def usage(self) -> dict[str, QuarantineUsage]:
        async with self._database.reading() as session:
            return read_usage(await session.fetch("quarantine_usage"))
