"""Lanes: only the oldest unsettled event of one can be claimed.

Whoever adds, settles or replays an event of a lane locks the lane's row first, and only then looks:
what was committed before is seen, what comes later waits. So order in a lane is the order of
acknowledgement, whichever instance took which event.
"""

from collections.abc import Collection

from ackbox.stores.postgres.database import Session

Lane = tuple[str, str | None]


async def lock_lanes(session: Session, lanes: Collection[Lane]) -> None:
    await session.fetch("lock_lanes", **_split(lanes))


async def promote(session: Session, lanes: Collection[Lane]) -> None:
    """The oldest can be claimed now, unless one runs; in that case the end of its run does this."""
    await session.fetch("promote", **_split(lanes))


async def demote(session: Session, lanes: Collection[Lane]) -> None:
    """The head steps back: it may no longer be the oldest."""
    await session.fetch("demote", **_split(lanes))


def _split(lanes: Collection[Lane]) -> dict[str, list[str | None]]:
    ordered = sorted(lanes, key=lambda lane: (lane[0], lane[1] or ""))
    return {"sources": [source for source, _ in ordered], "lanes": [lane for _, lane in ordered]}
