"""What keeps a running inbox well, and what its operators do to it."""

from ackbox.maintenance.discard import Discards, to_discard
from ackbox.maintenance.monitor import Monitor
from ackbox.maintenance.parked import unpark_handled
from ackbox.maintenance.replay import (
    Preview,
    ReplayProgress,
    Replays,
    pages,
    preview,
    to_replay,
    up_to,
)
from ackbox.maintenance.retention import Retention

__all__ = [
    "Discards",
    "Monitor",
    "Preview",
    "ReplayProgress",
    "Replays",
    "Retention",
    "pages",
    "preview",
    "to_discard",
    "to_replay",
    "unpark_handled",
    "up_to",
]
