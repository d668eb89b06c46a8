"""Record the events that handlers sent with `tx.send`, and on PostgreSQL those of `enqueue`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from ackbox.errors import OUTAGES
from ackbox.model import Moved
from ackbox.ports import Submissions

_SECONDS = 1.0

Sleep = Callable[[float], Awaitable[None]]


class Backlog(Protocol):
    """The part of ingest that counts recorded events."""

    def note_moved(self, moved: Moved) -> None: ...


class Mover:
    """Moves submissions into the ledger: at once after a handler of this process sent an event, and
    otherwise at least once a second, for events of other transactions and of processes that died.
    Back-pressure never refuses these events, because they are committed; they count in the
    backlog, so senders are refused sooner."""

    def __init__(
        self, submissions: Submissions, backlog: Backlog, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._submissions = submissions
        self._backlog = backlog
        self._sleep = sleep

    async def wait_and_move(self) -> None:
        await self._submissions.wait(timedelta(seconds=_SECONDS))
        try:
            await self.move_all()
        except OUTAGES:  # the store reports its own outages
            await self._sleep(_SECONDS)

    async def move_all(self) -> None:
        while (moved := await self._submissions.move()).envelopes:
            self._backlog.note_moved(moved)
