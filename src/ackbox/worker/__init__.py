"""From a claim to a settled outcome: claim -> handle -> settle.

scheduling   claims what is due, keeps the slots full, hands outcomes to the settler, drains
execution    one run of one handler, and what its end means; `threads` has the plain ones
deadlines    when runs must have ended
slots        what is held: waiting for a slot, or running
suspects     which event that may have ended the process runs next
settling     ends of runs on their way to the store
heartbeat    renews leases from a thread of its own
loop_probe   names what blocks the event loop
"""

from ackbox.worker.execution import Backoff, Executor, RunPolicy
from ackbox.worker.heartbeat import Heartbeat
from ackbox.worker.loop_probe import LoopProbe
from ackbox.worker.scheduler import Worker, WorkerConfig

__all__ = ["Backoff", "Executor", "Heartbeat", "LoopProbe", "RunPolicy", "Worker", "WorkerConfig"]
