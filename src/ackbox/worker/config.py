"""The configuration of a worker."""

from datetime import timedelta

from msgspec import Struct

from ackbox.model import WorkerId


class Pauses(Struct, frozen=True):
    """The seconds that a worker waits: before it repeats a claim or a settlement that failed,
    between two queries for suspects and two checks for runs that ignore their cancellation, and in
    a stop, for cancelled runs and for the last settlements."""

    retry: float = 0.5
    suspects: float = 1.0
    overdue: float = 1.0
    cancel: float = 1.0
    flush: float = 5.0


class WorkerConfig(Struct, frozen=True):
    """The id of a worker and its settings: slots, largest claim, lease, and what to do without a
    handler."""

    id: WorkerId
    count: int
    batch: int
    lease: timedelta
    park_unhandled: bool
    pauses: Pauses = Pauses()
