"""Servers on PostgreSQL under HTTP load."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import stats
from bench.load import generator
from bench.load.generator import Load
from bench.load.report import LoadReport, percentile_ms
from bench.options import Options
from bench.postgres import cluster
from bench.postgres.entrants import Entrant
from bench.programs import API_TOKEN, INBOX, NO_LIMIT
from bench.sample import Sample
from bench.server import Program, Server, running

KEPT_RATE = 0.98
TIMES = """
SELECT extract(epoch FROM processed_at - created_at)::float8 FROM events
WHERE status = 'completed' AND substr(idempotency_key, 10, 8) = '{run}' ORDER BY 1
"""


@dataclass(frozen=True)
class Instances:
    """Arguments and settings of the instance that receives the load, and of the other instance."""

    first: tuple[str, Mapping[str, str]]
    second: tuple[str, Mapping[str, str]]


TWO = Instances((INBOX, {}), (INBOX, {}))
NO_NOTIFY = Instances(("--no-workers", {}), (INBOX, {"NOTIFY": "off"}))


def ingest(entrant: Entrant, url: str, options: Options) -> Sample:
    load = Load(options.connections, options.seconds, generator=options.generator)
    with running(_program(entrant, url), options.directory / "round") as server:
        warm = generator.run(replace(load, seconds=options.warm_up), server.port)
        before = server.cpu_seconds()
        timed = generator.run(load, server.port)
        cpu_us = _per_event(server, before, timed)
    acked, errors = warm.acked + timed.acked, warm.errors + timed.errors
    return Sample(
        rate=timed.rate,
        acked=acked,
        errors=errors,
        p50_ms=timed.p50_ms,
        p99_ms=timed.p99_ms,
        cpu_us=cpu_us,
        kept=cluster.number(url, entrant.enqueued),
        at_most=acked + errors + warm.in_flight + timed.in_flight,
    )


def steady(instances: Instances, url: str, load: Load, options: Options, directory: Path) -> Sample:
    with ExitStack() as stack:
        first = stack.enter_context(_instance(url, *instances.first, directory / "first"))
        stack.enter_context(_instance(url, *instances.second, directory / "second"))
        generator.run(replace(load, seconds=options.warm_up), first.port)
        timed = generator.run(load, first.port)
        stats.await_empty(first)
    seconds = [float(row[0]) for row in cluster.fetch(url, TIMES.format(run=timed.run))]
    return Sample(
        rate=timed.rate,
        acked=timed.acked,
        errors=timed.errors,
        p50_ms=percentile_ms(seconds, 0.50),
        p99_ms=percentile_ms(seconds, 0.99),
        fault=_fault(load, timed, len(seconds)),
    )


def _instance(
    url: str, argument: str, settings: Mapping[str, str], directory: Path
) -> AbstractContextManager[Server]:
    directory.mkdir()
    return running(_serve(url, argument, settings), directory)


def _fault(load: Load, timed: LoadReport, completed: int) -> str | None:
    if timed.rate < load.rate * KEPT_RATE:
        return f"sent only {timed.rate:.0f} events/s"
    unfinished = timed.acked - completed
    return f"{unfinished} events were not completed" if unfinished else None


def _program(entrant: Entrant, url: str) -> Program:
    if not entrant.is_peer:
        return _serve(url, "--no-workers", {})
    command = [sys.executable, "-m", f"bench.peers.fastapi_{entrant.name}"]
    return Program(command, {"DATABASE_URL": url})


def _serve(url: str, argument: str, settings: Mapping[str, str]) -> Program:
    always = {
        "DATABASE_URL": url,
        "API_TOKEN": API_TOKEN,
        "LOG_LEVEL": "WARNING",
        "QUEUE_MAXSIZE": NO_LIMIT,
    }
    return Program([sys.executable, "-m", "ackbox", "serve", argument], {**always, **settings})


def _per_event(server: Server, before: float | None, timed: LoadReport) -> float | None:
    after = server.cpu_seconds()
    if before is None or after is None or not timed.acked:
        return None
    return (after - before) / timed.acked * 1e6
