"""The comparisons: who runs against whom, and what is asked of the result."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench import http_load, ledger, programs
from bench.audit import audit
from bench.bars import Bar, Section
from bench.http_load import Recipe
from bench.load.generator import Load
from bench.options import Options
from bench.rounds import Contender, Progress, interleave
from bench.sample import Sample
from bench.server import clean_environment

RECIPES: Mapping[str, Recipe] = {
    "noop": programs.noop,
    "as-written": programs.as_written,
    "ackbox": programs.ackbox,
    "ackbox-info": programs.ackbox_info,
}


def http(options: Options, progress: Progress) -> Section:
    load = Load(options.connections, options.seconds, generator=options.generator)
    contenders = [
        Contender(name, fresh(recipe, load, options))
        for name, recipe in RECIPES.items()
        if name in options.only
    ]
    summaries = interleave(contenders, options.rounds, options.directory, progress)
    bars = [Bar("ackbox", "as-written", 3.0, 5.0), Bar("ackbox", "noop", 0.30, 0.50)]
    return Section(f"durable ingest, {load.connections} connections", summaries, bars)


def inbound(options: Options, progress: Progress) -> Section:
    """Compare a source that verifies a Stripe signature with `POST /webhooks`. wrk cannot sign, so
    our own generator makes both loads."""
    load = Load(options.connections, options.seconds, generator="python")
    contenders = [
        Contender("webhooks", fresh(programs.ackbox, load, options)),
        Contender("in-stripe", fresh(programs.ackbox_source, replace(load, signed=True), options)),
    ]
    summaries = interleave(contenders, options.rounds, options.directory, progress)
    title = f"a signed source against /webhooks, {load.connections} connections"
    return Section(title, summaries, [Bar("in-stripe", "webhooks", 0.80)])


def batch(options: Options, progress: Progress) -> Section:
    load = Load(options.batch_connections, options.seconds, lines=options.lines)
    contenders = [
        Contender("raw-insert", lambda directory: _raw_insert(directory, options)),
        Contender("ackbox-batch", fresh(programs.ackbox, load, options)),
    ]
    summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"batch route, {options.lines} lines a request, {load.connections} connections"
    return Section(title, summaries, [Bar("ackbox-batch", "raw-insert", 0.50)])


def growth(options: Options, progress: Progress) -> Section:
    load = Load(options.connections, options.seconds, generator=options.generator)
    with _grown_copy(options, progress) as database:
        contenders = [
            Contender("empty", fresh(programs.ackbox, load, options)),
            Contender("grown", lambda _: _on_top(database, load, options)),
        ]
        summaries = interleave(contenders, options.short_rounds, options.directory, progress)
    title = f"growth, {options.grown_rows:,} completed rows against an empty ledger"
    return Section(title, summaries, [Bar("grown", "empty", 0.70)])


def fresh(recipe: Recipe, load: Load, options: Options) -> Callable[[Path], Sample]:
    def measure(directory: Path) -> Sample:
        return http_load.measure(recipe, load, options.warm_up, directory / "ledger.db")

    return measure


def _on_top(database: Path, load: Load, options: Options) -> Sample:
    """Rounds add to the one copy: what they add is little beside what was there."""
    return http_load.measure(programs.ackbox, load, options.warm_up, database)


@contextmanager
def _grown_copy(options: Options, progress: Progress) -> Iterator[Path]:
    progress(f"  a ledger of {options.grown_rows:,} rows (kept for the next run) ...")
    original = ledger.grown(options.directory, options.grown_rows)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        database = Path(directory) / "ledger.db"
        ledger.copy(original, database)
        yield database


def _raw_insert(directory: Path, options: Options) -> Sample:
    database = directory / "ledger.db"
    ledger.create(database)
    command = [sys.executable, "-m", "bench.baselines.raw_insert", str(database)]
    limits = ["--rows", str(options.lines), "--seconds", str(options.seconds)]
    environment = clean_environment({})
    done = subprocess.run([*command, *limits], env=environment, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    rows, seconds = int(result["rows"]), float(result["seconds"])
    cpu_us = float(result["cpu_seconds"]) / rows * 1e6
    return Sample(rows / seconds, acked=rows, cpu_us=cpu_us, kept=audit(database, 0, []).kept)
