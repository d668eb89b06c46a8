"""One round of one entrant: on a database of its own, checked by counting what is in it."""

import json
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.failure import BenchFailed
from bench.options import Options
from bench.postgres import cluster
from bench.postgres.entrants import Entrant
from bench.rounds import Contender
from bench.sample import Sample
from bench.server import clean_environment

RUN_LIMIT = 120
FIRST_LIMIT = 30.0
WORK_LIMIT = 20.0
STOP_LIMIT = 15.0


def contender(entrant: Entrant, measure: Callable[[Path], Sample]) -> Contender:
    """Return a contender. If a peer cannot be measured, report why and go on with the run."""
    if not entrant.is_peer:
        return Contender(entrant.name, measure)

    def guarded(directory: Path) -> Sample:
        try:
            return measure(directory)
        except (BenchFailed, asyncpg.PostgresError, OSError, ValueError) as failure:
            return Sample(0.0, acked=0, failure=f"failed: {failure}")

    return Contender(entrant.name, guarded)


def prepare(entrant: Entrant, url: str, options: Options) -> None:
    _run(entrant, options, "prepare", url)


def enqueue(entrant: Entrant, url: str, options: Options) -> Sample:
    before = cluster.number(url, entrant.enqueued)
    limits = ["--callers", str(options.connections), "--seconds", str(options.seconds)]
    report = _run(entrant, options, "enqueue", url, *limits, "--warm-up", str(options.warm_up))
    return Sample(
        rate=report["acked"] / report["seconds"],
        acked=report["total"],
        p50_ms=report["p50_ms"],
        p99_ms=report["p99_ms"],
        cpu_us=report["cpu_seconds"] / report["acked"] * 1e6,
        kept=cluster.number(url, entrant.enqueued) - before,
        at_most=report["total"],
    )


def work(entrant: Entrant, url: str, options: Options) -> Sample:
    """Measure from the first job that ran until the database has no uncompleted job. If an entrant
    does not finish in time, count the jobs that it has completed."""
    count = options.postgres_preloaded_rows
    _run(entrant, options, "preload", url, "--count", str(count))
    cluster.execute(url, "VACUUM ANALYZE")
    with _working(entrant, options, url, count) as process:
        first = _read_line(process, FIRST_LIMIT)
        if not first:
            raise BenchFailed(f"no job ran within {FIRST_LIMIT:.0f} s")
        last = _read_line(process, WORK_LIMIT)
        left = _left(entrant, url, wait=bool(last))
        seconds = time.time() - first["first"]
    done = count - left
    cpu_us = last["cpu_seconds"] / count * 1e6 if last else None
    fault = f"{left} jobs were not completed" if last and left else None
    return Sample(done / seconds, acked=done, cpu_us=cpu_us, fault=fault)


def _left(entrant: Entrant, url: str, *, wait: bool) -> int:
    """Count the uncompleted jobs. Wait for the last ones: a job is completed just after it ran."""
    deadline = time.monotonic() + (WORK_LIMIT if wait else 0.0)
    while (left := cluster.number(url, entrant.left)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return left


@contextmanager
def _working(
    entrant: Entrant, options: Options, url: str, count: int
) -> Iterator[subprocess.Popen[str]]:
    command = [*entrant.command(options.directory), "work", url, "--count", str(count)]
    log = options.directory / "round" / "worker.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=clean_environment(entrant.environment),
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _read_line(process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """Return the next line that the worker prints, or an empty dict after so many seconds."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    if not ready:
        return {}
    if not (line := process.stdout.readline()):
        raise BenchFailed("the worker ended by itself")
    content: dict[str, Any] = json.loads(line)
    return content


def _run(entrant: Entrant, options: Options, *arguments: str) -> Mapping[str, Any]:
    """Run the program. Return the last line that it printed, or an empty dict."""
    command = [*entrant.command(options.directory), *arguments]
    environment = clean_environment(entrant.environment)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RUN_LIMIT, check=True
        )
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"{arguments[0]} took longer than {RUN_LIMIT} s") from None
    except subprocess.CalledProcessError as failure:
        raise BenchFailed(f"{arguments[0]}: {_last_line(failure.stderr)}") from None
    lines = done.stdout.splitlines()
    printed: Mapping[str, Any] = json.loads(lines[-1]) if lines else {}
    return printed


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1] if lines else "it printed no error"
