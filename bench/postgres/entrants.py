"""The queues that take part: the program of each, and the SQL that counts its jobs."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.postgres import node


@dataclass(frozen=True)
class Entrant:
    """`enqueued` counts the jobs that are kept, `left` those that are not completed."""

    name: str
    command: Callable[[Path], list[str]]
    enqueued: str
    left: str
    environment: Mapping[str, str] = field(default_factory=dict)
    is_peer: bool = True


def _python(module: str) -> Callable[[Path], list[str]]:
    return lambda directory: [sys.executable, "-m", f"bench.peers.{module}"]


def _node(script: str) -> Callable[[Path], list[str]]:
    return lambda directory: node.command(directory, script)


def _ackbox(name: str, **settings: str) -> Entrant:
    return Entrant(
        name,
        _python("ackbox"),
        enqueued="SELECT count(*) FROM events",
        left="SELECT count(*) FROM live_events",
        environment=settings,
        is_peer=False,
    )


ACKBOX = _ackbox("ackbox")
# The settings that the how-to recommends for quick handlers.
ACKBOX_50 = _ackbox("ackbox-50", WORKER_COUNT="50", CLAIM_BATCH_SIZE="500")
PROCRASTINATE = Entrant(
    "procrastinate",
    _python("procrastinate"),
    enqueued="SELECT count(*) FROM procrastinate_jobs",
    left="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
)
PGQUEUER = Entrant(
    "pgqueuer",
    _python("pgqueuer"),
    enqueued="SELECT count(*) FROM pgqueuer",
    left="SELECT count(*) FROM pgqueuer",
)
GRAPHILE_WORKER = Entrant(
    "graphile-worker",
    _node("graphile.mjs"),
    enqueued="SELECT count(*) FROM graphile_worker._private_jobs",
    left="SELECT count(*) FROM graphile_worker._private_jobs",
)
PG_BOSS = Entrant(
    "pg-boss",
    _node("pgboss.mjs"),
    enqueued="SELECT count(*) FROM pgboss.job WHERE name = 'job'",
    left="SELECT count(*) FROM pgboss.job WHERE name = 'job' AND state < 'completed'",
)
PEERS = (PROCRASTINATE, PGQUEUER, GRAPHILE_WORKER, PG_BOSS)
