"""What keeps a running inbox well, and what its operators do to it."""

from ackbox.upkeep.discards import Discards, to_discard
from ackbox.upkeep.holding import put_back_held
from ackbox.upkeep.replaying import (
    Preview,
    ReplayProgress,
    Replays,
    pages,
    preview,
    to_replay,
    up_to,
)
from ackbox.upkeep.retention import Retention
from ackbox.upkeep.watch import Watch

__all__ = [
    "Discards",
    "Preview",
    "ReplayProgress",
    "Replays",
    "Retention",
    "Watch",
    "pages",
    "preview",
    "put_back_held",
    "to_discard",
    "to_replay",
    "up_to",
]
