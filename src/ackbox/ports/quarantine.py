"""The quarantine: requests that failed verification."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from ackbox.model import (
    QuarantineBudget,
    QuarantinedRequest,
    QuarantineFilter,
    QuarantineId,
    QuarantinePage,
    QuarantineUsage,
    RefusedRequest,
    Removal,
)


class Quarantine(Protocol):
    """The port of the quarantine: it keeps requests that failed verification, apart from events."""

    async def keep(
        self, requests: Sequence[RefusedRequest], budget: QuarantineBudget
    ) -> list[bool]:
        """Keep the requests that fit into the budget; return for each whether it was kept.

        A request fits if the bytes of its source stay within `budget.share`, and those of all
        sources within `budget.total`, whatever other instances keep at the same time. A single
        request may be larger than the share: see `QuarantineBudget.has_room`. What is kept
        already stays: the newest requests are the ones that do not fit. Raises the same errors as
        `Ledger.record`; after `OutcomeUnknown`, a request may be kept twice if it is kept again.
        """
        ...

    async def remove(
        self, removals: Sequence[Removal], *, actor: str, peer: str | None = None
    ) -> AbstractSet[QuarantineId]:
        """Remove these requests; return the ids of those that existed.

        Each of these gets an audit row in the same commit, which names the actor, the source, the
        reason of the refusal, and the event that the request became. If two callers remove one
        request, only one of them gets its id.
        """
        ...


class QuarantineReader(Protocol):
    """The quarantine for the HTTP API and the command line: it only reads."""

    async def page(
        self, where: QuarantineFilter, *, limit: int, cursor: QuarantineId | None = None
    ) -> QuarantinePage:
        """Return at most `limit` kept requests in the order in which they were kept, after
        `cursor`."""
        ...

    async def requests(self, ids: Sequence[QuarantineId]) -> list[QuarantinedRequest]:
        """Return those of these requests that exist, byte for byte, in order of their ids."""
        ...

    async def usage(self) -> Mapping[str, QuarantineUsage]:
        """Return how much of each source is kept. The writers maintain it, so that the call reads
        one row for each source."""
        ...
