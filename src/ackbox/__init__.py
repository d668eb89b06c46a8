"""A durable inbox for webhooks and events.

These are the names that users import. Each is loaded on first use, so that commands start fast.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Dead", "Event", "Inbox", "Receipt", "Retry", "Snooze", "Tx", "__version__"]

if TYPE_CHECKING:
    from ackbox.handlers import Dead, Event, Retry, Snooze, Tx
    from ackbox.inbox import Inbox
    from ackbox.model import Receipt


def __getattr__(name: str) -> object:
    if name == "Inbox":
        from ackbox.inbox import Inbox

        return Inbox
    if name == "Receipt":
        from ackbox.model import Receipt

        return Receipt
    if name in __all__:
        from ackbox import handlers

        return getattr(handlers, name)
    raise AttributeError(f"module 'ackbox' has no attribute {name!r}")
