"""`python -m bench`: every comparison in one run; the exit code says whether a must was missed."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import against, environment, processing, profile, report, sections
from bench.bars import Section
from bench.failure import BenchFailed
from bench.load import generator
from bench.options import Options, parse
from bench.postgres import sections as on_postgres
from bench.rounds import Progress

COMPARISONS: Mapping[str, Callable[[Options, Progress], Section]] = {
    "http": sections.http,
    "inbound": sections.inbound,
    "batch": sections.batch,
    "growth": sections.growth,
    "end-to-end": processing.end_to_end,
    "latency": processing.latency,
    "worker": processing.worker,
    "postgres-enqueue": on_postgres.enqueue,
    "postgres-work": on_postgres.work,
    "postgres-http": on_postgres.http,
    "postgres-growth": on_postgres.growth,
    "postgres-latency": on_postgres.latency,
}
IN_MEMORY = ("tmpfs", "ramfs")


def main() -> int:
    options = parse()
    try:
        return _run(options)
    except BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 2


def _run(options: Options) -> int:
    _prepare(options.directory)
    machine = environment.describe(options.directory)
    machine["load generator"] = generator.resolve(options.generator)
    _say(", ".join(f"{name} {value}" for name, value in machine.items()))
    if options.against:
        return _compare_with(options.against, options, machine)
    taken = [
        _compare(name, compare, options)
        for name, compare in COMPARISONS.items()
        if name in options.sections
    ]
    shares = _profile(options) if "profile" in options.sections else None
    if options.json:
        report.write_json(options.json, machine, taken, shares)
    return _conclude(taken)


def _compare_with(revision: str, options: Options, machine: Mapping[str, str]) -> int:
    compared = against.compare(options, revision, _say)
    if options.json:
        report.write_comparisons(options.json, machine, against.plain(compared))
    slower = [comparison.section for comparison in compared if comparison.interval.is_slower]
    for section in slower:
        _say(f"\nSLOWER: {section}")
    return 1 if slower else 0


def _prepare(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ".gitignore").write_text("*\n")
    if environment.filesystem(directory) in IN_MEMORY:
        raise BenchFailed(f"{directory} is in memory, where a sync costs nothing; choose --dir")


def _compare(
    name: str, compare: Callable[[Options, Progress], Section], options: Options
) -> Section:
    _say(f"\n{name} ...")
    section = compare(options, _say)
    _say(f"\n{report.text(section)}")
    return section


def _profile(options: Options) -> dict[str, object] | None:
    _say("\nprofile ...")
    try:
        taken = profile.take(options)
    except BenchFailed as failure:
        _say(f"  skipped: {failure}")
        return None
    _say(f"\n{profile.text(taken)}")
    return profile.plain(taken)


def _conclude(taken: list[Section]) -> int:
    missed = [section.title for section in taken if report.failed(section)]
    for title in missed:
        _say(f"\nFAILED: {title}")
    return 1 if missed else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
