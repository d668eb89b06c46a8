"""The worker: it claims due events, runs their handlers and settles the outcomes.

worker          claims due events, admits them, runs them, settles their outcomes; drains
admission       decides how many events to claim, and which claim starts next
suspects        decides about events whose last runs ended with the process
execution       runs a handler once and returns the outcome
settlement      writes outcomes to the store in batches
backlog         what ingest is told of claims, for its back-pressure
config          settings and pauses of the worker
coroutines      waits for coroutines and ends them
abandoned_runs  counts and reports runs that cannot be ended
threads         the threads of plain handlers
deadlines       reports runs that exceed their time-out
failures        turns an exception into the failure that is stored
tracebacks      formats where a run failed or hangs, without local variables
heartbeat       renews leases from a thread of its own
loop_probe      names the call that blocks the event loop
"""

from ackbox.worker.config import Pauses, WorkerConfig
from ackbox.worker.execution import Backoff, Executor, RunPolicy
from ackbox.worker.heartbeat import Heartbeat
from ackbox.worker.loop_probe import LoopProbe
from ackbox.worker.worker import Worker

__all__ = [
    "Backoff",
    "Executor",
    "Heartbeat",
    "LoopProbe",
    "Pauses",
    "RunPolicy",
    "Worker",
    "WorkerConfig",
]
