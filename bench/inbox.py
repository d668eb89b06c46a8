"""What `ackbox serve bench.inbox:inbox` runs: a handler that does nothing."""

from ackbox import Event, Inbox
from bench import traffic

inbox = Inbox()


@inbox.on(traffic.EVENT_TYPE)
async def do_nothing(event: Event) -> None:
    """All that is measured is ackbox around it."""
