"""The maintenance loops of a running inbox, and the bulk actions of operators."""

from ackbox.maintenance.discard import Discards, restrict_to_discardable
from ackbox.maintenance.monitor import Monitor
from ackbox.maintenance.mover import Mover
from ackbox.maintenance.parked import unpark_handled
from ackbox.maintenance.replay import (
    Preview,
    ReplayProgress,
    Replays,
    pages,
    preview,
    restrict_to_replayable,
    restrict_until,
)
from ackbox.maintenance.retention import Retention

__all__ = [
    "Discards",
    "Monitor",
    "Mover",
    "Preview",
    "ReplayProgress",
    "Replays",
    "Retention",
    "pages",
    "preview",
    "restrict_to_discardable",
    "restrict_to_replayable",
    "restrict_until",
    "unpark_handled",
]
