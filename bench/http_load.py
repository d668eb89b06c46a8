"""Measures one server under HTTP load: warm-up, load, stop, and an audit of what it kept."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.audit import Audit, audit, newest
from bench.load import generator
from bench.load.generator import Load
from bench.load.report import LoadReport
from bench.sample import Sample
from bench.server import Program, Server, running

Recipe = Callable[[Path], Program]
"""From the database file to the server that keeps its events there."""


@dataclass(frozen=True)
class Observed:
    sample: Sample
    timed: LoadReport


def measure(recipe: Recipe, load: Load, warm_up: float, database: Path) -> Sample:
    return observe(recipe, load, warm_up, database).sample


def observe(
    recipe: Recipe,
    load: Load,
    warm_up: float,
    database: Path,
    before_stop: Callable[[Server], None] = lambda server: None,
) -> Observed:
    """The file may hold rows already; if there is none afterwards, the server keeps nothing."""
    before = newest(database)
    with running(recipe(database), database.parent) as server:
        warm = generator.run(replace(load, seconds=warm_up), server.port)
        timed, cpu_us = _timed(server, load)
        before_stop(server)
    audited = audit(database, before, [warm, timed]) if database.exists() else None
    return Observed(_sample(warm, timed, cpu_us, audited), timed)


def _timed(server: Server, load: Load) -> tuple[LoadReport, float | None]:
    before = server.cpu_seconds()
    report = generator.run(load, server.port)
    after = server.cpu_seconds()
    if before is None or after is None or not report.acked:
        return report, None
    return report, (after - before) / report.acked * 1e6


def _sample(
    warm: LoadReport, timed: LoadReport, cpu_us: float | None, audited: Audit | None
) -> Sample:
    acked = warm.acked + timed.acked
    errors = warm.errors + timed.errors
    return Sample(
        rate=timed.rate,
        acked=acked,
        errors=errors,
        p50_ms=timed.p50_ms,
        p99_ms=timed.p99_ms,
        cpu_us=cpu_us,
        kept=audited.kept if audited else None,
        at_most=acked + errors + warm.in_flight + timed.in_flight,
        missing=audited.missing if audited else 0,
    )
