"""The bounds of a comparison: ratios to be reached, ceilings to stay under."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.sample import Summary


@dataclass(frozen=True)
class Bar:
    """One contender's figure against another's. `must` decides the exit code; `aim` is shown."""

    of: str
    against: str
    must: float
    aim: float | None = None
    figure: str = "rate"


@dataclass(frozen=True)
class Ceiling:
    """A figure that should be no higher, whatever the others do; `must` and `aim` as in a bar."""

    of: str
    figure: str
    must: float | None = None
    aim: float | None = None


@dataclass(frozen=True)
class Section:
    title: str
    summaries: Mapping[str, Summary]
    bars: Sequence[Bar]
    ceilings: Sequence[Ceiling] = ()


@dataclass(frozen=True)
class Verdict:
    bound: Bar | Ceiling
    value: float

    @property
    def missed(self) -> bool:
        return self.bound.must is not None and not self.reaches(self.bound.must)

    def reaches(self, limit: float) -> bool:
        return self.value >= limit if isinstance(self.bound, Bar) else self.value <= limit


def verdicts(section: Section) -> list[Verdict]:
    """Judge every bound, except those whose contender did not run or whose figure was not taken."""
    bounds: list[Bar | Ceiling] = [*section.bars, *section.ceilings]
    values = [(bound, _value(bound, section.summaries)) for bound in bounds]
    return [Verdict(bound, value) for bound, value in values if value is not None]


def _value(bound: Bar | Ceiling, summaries: Mapping[str, Summary]) -> float | None:
    of = _figure(summaries.get(bound.of), bound.figure)
    if isinstance(bound, Ceiling):
        return of
    against = _figure(summaries.get(bound.against), bound.figure)
    return of / against if of is not None and against else None


def _figure(summary: Summary | None, name: str) -> float | None:
    figure: float | None = getattr(summary, name) if summary else None
    return figure
