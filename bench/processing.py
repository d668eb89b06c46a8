"""The comparisons with workers: events are not only taken, but completed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bench import flow, http_load, ledger, programs, sections, stats
from bench.bars import Bar, Ceiling, Section
from bench.http_load import Recipe
from bench.load.generator import Load
from bench.load.report import percentile_ms
from bench.options import Options
from bench.rounds import Contender, Progress, interleave
from bench.sample import Sample
from bench.server import Server, running

RECIPES: Mapping[str, Recipe] = {
    "as-written": programs.as_written_worker,
    "ackbox": programs.ackbox_working,
    "ackbox-20": programs.ackbox_working_20,
}
KEPT_RATE = 0.98
"""A sender that manages less of the rate it was asked for did not measure that rate."""


def end_to_end(options: Options, progress: Progress) -> Section:
    load = Load(options.connections, options.seconds, generator=options.generator)
    everyone = [
        Contender("ingest-only", sections.fresh(programs.ackbox, load, options)),
        *(Contender(name, _flowing(recipe, load, options)) for name, recipe in RECIPES.items()),
    ]
    contenders = [contender for contender in everyone if contender.name in options.only]
    summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    bars = [
        Bar("ackbox", "as-written", 10.0, figure="completed_rate"),
        Bar("ackbox", "ingest-only", 0.50),
    ]
    title = f"end to end, {load.connections} connections, a handler that does nothing"
    ceilings = [Ceiling("ackbox", "backlog_growth", must=0.02)]
    return Section(title, summaries, bars, ceilings)


def latency(options: Options, progress: Progress) -> Section:
    load = Load(options.connections, options.seconds, rate=options.steady_rate)
    contenders = [Contender("ackbox", lambda directory: _steady(directory, load, options))]
    summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"from received to completed, at a steady {load.rate:,.0f} events/s"
    return Section(title, summaries, [], [Ceiling("ackbox", "p99_ms", aim=50.0)])


def worker(options: Options, progress: Progress) -> Section:
    count = options.preloaded_rows
    contenders = [Contender("ackbox", lambda directory: _catch_up(directory, count))]
    summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"workers alone, {count:,} events waiting at the start"
    return Section(title, summaries, [], [Ceiling("ackbox", "cpu_us", aim=60.0)])


def _flowing(recipe: Recipe, load: Load, options: Options) -> Callable[[Path], Sample]:
    def measure(directory: Path) -> Sample:
        database = directory / "ledger.db"
        observed = http_load.observe(recipe, load, options.warm_up, database)
        measured = flow.during(database, observed.timed)
        return replace(
            observed.sample,
            completed_rate=measured.completed_rate,
            backlog=measured.backlog,
            backlog_growth=measured.growth,
        )

    return measure


def _steady(directory: Path, load: Load, options: Options) -> Sample:
    database = directory / "ledger.db"
    recipe, warm_up = programs.ackbox_working, options.warm_up
    observed = http_load.observe(recipe, load, warm_up, database, stats.await_empty)
    seconds = flow.latencies(database, observed.timed)
    unfinished, rate = observed.timed.acked - len(seconds), observed.sample.rate
    fault = f"{unfinished} events were not completed" if unfinished else None
    if rate < load.rate * KEPT_RATE:
        fault = f"sent only {rate:.0f} events/s"
    return replace(
        observed.sample,
        p50_ms=percentile_ms(seconds, 0.50),
        p99_ms=percentile_ms(seconds, 0.99),
        fault=fault,
    )


def _catch_up(directory: Path, count: int) -> Sample:
    database = directory / "ledger.db"
    ledger.preload(database, count)
    with running(programs.ackbox_working(database), directory) as server:
        cpu_us = _cpu_us_per_event(server, count)
    rate = count / flow.completing_seconds(database)
    unhandled = count - flow.handled(database)
    fault = f"{unhandled} events were not handled" if unhandled else None
    return Sample(rate, acked=count, cpu_us=cpu_us, fault=fault)


def _cpu_us_per_event(server: Server, count: int) -> float | None:
    """Nothing is subtracted. What is completed while the server starts is not counted: neither the
    events nor, but for the few milliseconds of the first request, their CPU time."""
    before = server.cpu_seconds()
    left = count - stats.completed(server)
    stats.await_empty(server)
    after = server.cpu_seconds()
    return None if before is None or after is None else (after - before) / max(left, 1) * 1e6
