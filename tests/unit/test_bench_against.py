"""`make bench ARGS="--against REV"`: when a change is called slower."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench import against, trees
from bench.failure import BenchFailed
from bench.intervals import paired_interval
from bench.options import Options, parse
from bench.trees import arguments


@dataclass(eq=False)
class ScriptedTree:
    """A tree that returns the given rates in order, and records its turns."""

    label: str
    rates: Iterator[float]
    turns: list[str] = field(default_factory=list)

    def measure(self, section: str, options: Options) -> dict[str, dict[str, Any]]:
        self.turns.append(self.label)
        return {"ackbox": {"rate": next(self.rates), "cpu_us": 80.0}}


def compare(old: Sequence[float], new: Sequence[float]) -> tuple[against.Comparison, list[str]]:
    turns: list[str] = []
    old_tree: Any = ScriptedTree("old", iter(old), turns)
    new_tree: Any = ScriptedTree("new", iter(new), turns)
    options = parse(["--against", "HEAD~1", "http", "--rounds", str(len(old))])
    comparison, _ = against.compare_section("http", old_tree, new_tree, options, lambda line: None)
    return comparison, turns


def test_a_change_is_slower_only_when_the_whole_interval_lies_below_the_bound() -> None:
    comparison, _ = compare([100, 101, 99, 100], [90, 91, 89, 90.5])
    assert comparison.interval.is_slower
    assert comparison.interval.verdict == "SLOWER"


def test_a_change_that_chance_explains_is_not_called_slower() -> None:
    comparison, _ = compare([100, 80, 120, 100], [90, 95, 85, 100])
    assert comparison.interval.ratio < 0.97 < comparison.interval.high
    assert comparison.interval.verdict == "not slower"


def test_a_change_whose_whole_interval_is_faster_is_called_faster() -> None:
    comparison, _ = compare([100, 101, 99], [120, 121, 119.5])
    assert comparison.interval.verdict == "faster"


def test_each_pair_begins_with_the_other_tree() -> None:
    _, turns = compare([100, 100, 100], [100, 100, 100])
    assert turns == ["old", "new", "new", "old", "old", "new"]


def test_the_interval_is_that_of_student() -> None:
    """Compare with logs of 0.9 and 1.1: mean -0.0050, deviation 0.1419, t of one degree 12.706."""
    interval = paired_interval([0.9, 1.1])
    assert interval.ratio == pytest.approx(0.99499, abs=1e-5)
    assert (interval.low, interval.high) == pytest.approx((0.27807, 3.56030), abs=1e-4)


def test_one_pair_alone_proves_nothing() -> None:
    assert not paired_interval([0.5]).is_slower


def test_less_latency_is_faster() -> None:
    assert against.P99.ratio((8.0, 4.0)) == 2.0


def test_a_figure_that_is_missing_ends_the_run() -> None:
    with pytest.raises(BenchFailed, match="ackbox has no rate"):
        compare([0.0], [100])


def test_a_comparison_takes_ten_pairs_by_default() -> None:
    assert parse(["--against", "HEAD", "http"]).rounds == 10
    assert parse(["--against", "HEAD", "http", "--rounds", "3"]).rounds == 3


def test_sizes_are_passed_on_to_both_trees() -> None:
    options = parse(["--against", "HEAD", "--grown-rows", "7", "--preloaded-rows", "9"])
    for section in ("growth", "postgres-growth"):
        passed = arguments(section, options)
        assert passed[passed.index("--grown-rows") + 1] == "7"
        assert passed[passed.index("--preloaded-rows") + 1] == "9"


@pytest.mark.parametrize(("section", "rows"), [("growth", "2000000"), ("postgres-work", "5000000")])
def test_each_database_has_its_own_default_size(section: str, rows: str) -> None:
    passed = arguments(section, parse(["--against", "HEAD"]))
    assert passed[passed.index("--grown-rows") + 1] == rows


def test_contenders_cannot_be_chosen_when_trees_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse(["--against", "HEAD", "--only", "ackbox"])
    assert "--only cannot be used with --against" in capsys.readouterr().err


def test_both_trees_keep_their_databases_below_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_call", lambda command, what: "0123456789abcdef")
    for tree in (trees.worktree_of("HEAD", tmp_path), trees.working_tree(tmp_path)):
        assert tree.workspace.is_relative_to(tmp_path)
