"""The worker: it claims due events, runs their handlers and settles the outcomes.

scheduler    claims due events, keeps the slots full, passes outcomes to the settler, drains
slots        the held claims: those that wait for a slot, and those that run
suspects     finds the next event whose last runs ended with the process
execution    runs a handler once and returns the outcome
threads      the threads of plain handlers
deadlines    reports runs that exceed their time-out
failures     turns an exception into the failure that is stored
tracebacks   formats where a run failed or hangs, without local variables
settlement   writes outcomes to the store in batches
heartbeat    renews leases from a thread of its own
loop_probe   names the call that blocks the event loop
"""

from ackbox.worker.execution import Backoff, Executor, RunPolicy
from ackbox.worker.heartbeat import Heartbeat
from ackbox.worker.loop_probe import LoopProbe
from ackbox.worker.scheduler import Worker, WorkerConfig

__all__ = ["Backoff", "Executor", "Heartbeat", "LoopProbe", "RunPolicy", "Worker", "WorkerConfig"]
