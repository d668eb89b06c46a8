"""The options of the command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.server import ROOT

ON_POSTGRES = ("enqueue", "work", "http", "growth", "latency")
SECTIONS = (
    *("http", "inbound", "batch", "growth", "end-to-end", "latency", "worker"),
    *(f"postgres-{name}" for name in ON_POSTGRES),
    "profile",
)
PEERS = ("procrastinate", "pgqueuer", "graphile-worker", "pg-boss")
OURS = ("ackbox", "ackbox-info", "ackbox-20", "ackbox-50", "ingest-only")
CONTENDERS = ("noop", "as-written", *OURS, *PEERS)
MAJORS = (16, 18)


@dataclass(frozen=True)
class Options:
    """`short_rounds` are those of all sections but `http`; `grown_rows` and `preloaded_rows` are
    those on SQLite. `against` is the revision to compare with, in `rounds` pairs."""

    sections: tuple[str, ...]
    only: tuple[str, ...]
    rounds: int
    short_rounds: int
    seconds: float
    profile_seconds: int
    grown_rows: int
    connections: int
    batch_connections: int
    lines: int
    steady_rate: float
    preloaded_rows: int
    postgres_major: int
    postgres_grown_rows: int
    postgres_preloaded_rows: int
    generator: str
    directory: Path
    json: Path | None
    against: str | None = None
    quick: bool = False
    warm_up: float = 1.0


def parse(arguments: Sequence[str] | None = None) -> Options:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    sections = tuple(name for section in chosen.sections for name in _expand(section))
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))} ({_listed(SECTIONS)})")
    if chosen.against and chosen.only:
        parser.error(
            "--only cannot be used with --against: both trees run only ackbox; name SECTIONs"
        )
    quick = bool(chosen.quick)
    return Options(
        sections=sections or (("http",) if chosen.only else SECTIONS),
        only=tuple(chosen.only) or CONTENDERS,
        rounds=chosen.rounds or _default_rounds(quick, chosen.against),
        short_rounds=chosen.rounds or (1 if quick else 3),
        seconds=chosen.seconds or (2 if quick else 4),
        profile_seconds=3 if quick else 10,
        grown_rows=chosen.grown_rows or (200_000 if quick else 2_000_000),
        connections=chosen.connections,
        batch_connections=chosen.batch_connections,
        lines=chosen.lines,
        steady_rate=chosen.steady_rate,
        preloaded_rows=chosen.preloaded_rows or (10_000 if quick else 50_000),
        postgres_major=chosen.postgres,
        postgres_grown_rows=chosen.grown_rows or (200_000 if quick else 5_000_000),
        postgres_preloaded_rows=chosen.preloaded_rows or (5_000 if quick else 20_000),
        generator=chosen.generator,
        directory=chosen.dir.resolve(),
        json=chosen.json,
        against=chosen.against,
        quick=quick,
    )


def _default_rounds(quick: bool, against: str | None) -> int:
    if quick:
        return 2
    return 10 if against else 5


def _expand(section: str) -> list[str]:
    return [f"postgres-{name}" for name in ON_POSTGRES] if section == "postgres" else [section]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measures ackbox against its bounds, in one run."
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=_listed(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="short, to see that it works")
    parser.add_argument("--against", metavar="REV", help="is this tree slower than that revision?")
    parser.add_argument("--only", action="append", default=[], choices=CONTENDERS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of load in a round")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--batch-connections", type=int, default=4)
    parser.add_argument("--lines", type=int, default=1000, help="events in a batch request")
    parser.add_argument("--grown-rows", type=int, help="completed rows in the grown ledger")
    parser.add_argument("--steady-rate", type=float, default=500.0, help="events/s in `latency`")
    parser.add_argument("--preloaded-rows", type=int, help="pending rows in `worker`")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=16, help="its version")
    parser.add_argument("--generator", choices=("auto", "wrk", "python"), default="auto")
    parser.add_argument("--dir", type=Path, default=ROOT / ".bench", help="on a real disk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    return parser


def _listed(names: Sequence[str]) -> str:
    return f"any of {', '.join(names)}; all if none is given"
