"""What is asked of a comparison: ratios to be reached, ceilings to stay under."""

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
    asked: Bar | Ceiling
    value: float

    @property
    def missed(self) -> bool:
        return self.asked.must is not None and not self.reaches(self.asked.must)

    def reaches(self, bound: float) -> bool:
        return self.value >= bound if isinstance(self.asked, Bar) else self.value <= bound


def verdicts(section: Section) -> list[Verdict]:
    """What cannot be judged has none: a contender that did not run, a figure that was not taken."""
    asked: list[Bar | Ceiling] = [*section.bars, *section.ceilings]
    values = [(one, _value(one, section.summaries)) for one in asked]
    return [Verdict(one, value) for one, value in values if value is not None]


def _value(asked: Bar | Ceiling, summaries: Mapping[str, Summary]) -> float | None:
    of = _figure(summaries.get(asked.of), asked.figure)
    if isinstance(asked, Ceiling):
        return of
    against = _figure(summaries.get(asked.against), asked.figure)
    return of / against if of is not None and against else None


def _figure(summary: Summary | None, name: str) -> float | None:
    figure: float | None = getattr(summary, name) if summary else None
    return figure
