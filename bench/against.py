"""`--against REV`: is the working tree slower than another revision?

Each pair of rounds measures both trees, one right after the other, and the pairs take turns in
which tree is first. A slow minute of the machine, and caches left by a round, affect both trees
equally. Each tree is measured by its own bench, so the names of tables and settings may differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.failure import BenchFailed
from bench.intervals import SLOWER_BELOW, Interval, paired_interval
from bench.options import Options
from bench.rounds import Progress
from bench.trees import Contenders, Tree, working_tree, worktree_of

FEWEST_PAIRS = 5
Pair = tuple[float, float]
"""A figure of the other revision, and the same figure of the working tree."""


@dataclass(frozen=True)
class Figure:
    """One figure of one contender. `less_is_better` is true for latencies and CPU time."""

    contender: str
    name: str = "rate"
    less_is_better: bool = False

    def ratio(self, pair: Pair) -> float:
        """Return the ratio of speeds: above 1, the working tree is faster."""
        before, after = pair
        return before / after if self.less_is_better else after / before


@dataclass(frozen=True)
class Comparison:
    section: str
    figure: Figure
    pairs: Sequence[Pair]
    interval: Interval


P99 = Figure("ackbox", "p99_ms", less_is_better=True)
CPU = Figure("ackbox", "cpu_us", less_is_better=True)
FIGURES: Mapping[str, Sequence[Figure]] = {
    "http": [Figure("ackbox"), CPU],
    "batch": [Figure("ackbox-batch")],
    "growth": [Figure("grown")],
    "end-to-end": [Figure("ackbox", "completed_rate"), CPU],
    "latency": [P99],
    "worker": [Figure("ackbox"), CPU],
    "postgres-enqueue": [Figure("ackbox")],
    "postgres-work": [Figure("ackbox"), Figure("ackbox-50")],
    "postgres-http": [Figure("ackbox"), CPU],
    "postgres-growth": [Figure("grown"), Figure("grown-work")],
    "postgres-latency": [Figure("two", "p99_ms", less_is_better=True)],
}


def compare(options: Options, revision: str, progress: Progress) -> list[Comparison]:
    """Compare every chosen section. Print each result as soon as it is known."""
    progress(f"preparing {revision} ...")
    old, new = worktree_of(revision, options.directory), working_tree(options.directory)
    progress(f"{new.label} against {old.label}, {options.rounds} pairs of rounds")
    if options.rounds < FEWEST_PAIRS:
        progress(f"fewer than {FEWEST_PAIRS} pairs show that it runs, and hardly any difference")
    compared: list[Comparison] = []
    for section in (name for name in options.sections if name in FIGURES):
        comparisons = compare_section(section, old, new, options, progress)
        progress("\n" + "\n".join(map(line, comparisons)))
        compared += comparisons
    return compared


def line(comparison: Comparison) -> str:
    figure, interval = comparison.figure, comparison.interval
    what = f"{comparison.section}, {figure.contender}"
    if figure.less_is_better:
        what += f" {figure.name}, inverted"
    return (
        f"  {what:<44}{interval.ratio:>6.3f}   95 % of {interval.low:.3f} to {interval.high:.3f}"
        f"   {interval.verdict}"
    )


def plain(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    return [
        {**asdict(comparison), "verdict": comparison.interval.verdict, "bound": SLOWER_BELOW}
        for comparison in comparisons
    ]


def compare_section(
    section: str, old: Tree, new: Tree, options: Options, progress: Progress
) -> list[Comparison]:
    progress(f"\n{section} ...")
    pairs: dict[Figure, list[Pair]] = {figure: [] for figure in FIGURES[section]}
    for number in range(options.rounds):
        order = (old, new) if number % 2 == 0 else (new, old)
        taken = {tree: tree.measure(section, options) for tree in order}
        for figure, values in pairs.items():
            values.append((_value(figure, taken[old]), _value(figure, taken[new])))
        ratios = "  ".join(f"{figure.ratio(values[-1]):.3f}" for figure, values in pairs.items())
        progress(f"  pair {number + 1}/{options.rounds}   {ratios}")
    return [_conclude(section, figure, values) for figure, values in pairs.items()]


def _conclude(section: str, figure: Figure, pairs: Sequence[Pair]) -> Comparison:
    interval = paired_interval([figure.ratio(pair) for pair in pairs])
    return Comparison(section, figure, pairs, interval)


def _value(figure: Figure, contenders: Contenders) -> float:
    value: float | None = contenders.get(figure.contender, {}).get(figure.name)
    if not value:
        raise BenchFailed(f"{figure.contender} has no {figure.name} in one of the two trees")
    return value
