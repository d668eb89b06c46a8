"""Lanes: only the oldest unsettled event of a lane can be claimed.

A transaction that adds, settles or replays an event of a lane locks the lane's row first, and reads
the lane after that. It sees every earlier commit, and later transactions wait for it. So the order
in a lane is the order of acknowledgement, whichever instance received which event.
"""

from collections.abc import Collection

from ackbox.stores.postgres.database import Session

Lane = tuple[str, str | None]


async def lock_lanes(session: Session, lanes: Collection[Lane]) -> None:
    await session.fetch("lock_lanes", **_split(lanes))


async def promote(session: Session, lanes: Collection[Lane]) -> None:
    """Make the oldest event of each lane claimable. If an event of the lane runs, do nothing: the
    settlement of that event calls this function again."""
    await session.fetch("promote", **_split(lanes))


async def demote(session: Session, lanes: Collection[Lane]) -> None:
    """Make the head of each lane unclaimable: it may no longer be the oldest event."""
    await session.fetch("demote", **_split(lanes))


def _split(lanes: Collection[Lane]) -> dict[str, list[str | None]]:
    ordered = sorted(lanes, key=lambda lane: (lane[0], lane[1] or ""))
    return {"sources": [source for source, _ in ordered], "lanes": [lane for _, lane in ordered]}
