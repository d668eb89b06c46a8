"""Interleaved rounds: a, b, c, a, b, c, so that a slow minute of the machine hits all alike."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.sample import Sample, Summary, summarise

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """`measure` gets an empty directory and must leave no process behind."""

    name: str
    measure: Callable[[Path], Sample]


def interleave(
    contenders: Sequence[Contender], rounds: int, workspace: Path, progress: Progress
) -> dict[str, Summary]:
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for number in range(1, rounds + 1):
        for contender in contenders:
            sample = _run_round(contender, workspace)
            samples[contender.name].append(sample)
            progress(_line(number, rounds, contender.name, sample))
    return {name: summarise(name, taken) for name, taken in samples.items()}


def _run_round(contender: Contender, workspace: Path) -> Sample:
    """Measure in a new directory. It is kept if the round fails, so that it can be inspected."""
    directory = workspace / "round"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    sample = contender.measure(directory)
    shutil.rmtree(directory)
    return sample


def _line(number: int, rounds: int, name: str, sample: Sample) -> str:
    label = f"  round {number}/{rounds}  {name:<16}"
    if sample.failure:
        return f"{label} {sample.failure}"
    problem = sample.problem()
    return f"{label} {sample.rate:>9,.0f}/s" + (f"  {problem}" if problem else "")
