"""One measurement, and the median of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Backlog = tuple[float, float, float]
"""Events received and not completed, at the begin, in the middle and at the end of a load."""


@dataclass(frozen=True)
class Sample:
    """One round of one contender, in events.

    For a contender that stores rows, `kept` counts the rows, `at_most` counts the events that were
    sent, and `missing` counts gaps in the numbered keys; a refused request leaves a gap too.
    `fault` is any other error. `failure` is the reason why a peer could not be measured; it is
    shown and does not fail the run.
    """

    rate: float
    acked: int
    errors: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_us: float | None = None
    kept: int | None = None
    at_most: int | None = None
    missing: int = 0
    completed_rate: float | None = None
    backlog: Backlog | None = None
    backlog_growth: float | None = None
    fault: str | None = None
    failure: str | None = None

    def problem(self) -> str | None:
        """Return what disqualifies this round, or None."""
        if self.failure:
            return None
        if self.kept is not None and self.kept < self.acked:
            return f"LOST EVENTS: acknowledged {self.acked}, on disk {self.kept}"
        if self.missing > self.errors:
            return f"LOST EVENTS: {self.missing} missing among the acknowledged"
        if self.kept is not None and self.at_most is not None and self.kept > self.at_most:
            return f"too many rows: {self.kept}, when at most {self.at_most} were sent"
        if self.errors:
            return f"{self.errors} requests failed"
        return self.fault if self.acked else "nothing was acknowledged"


@dataclass(frozen=True)
class Summary:
    """Medians over the rounds of one contender; errors are added up."""

    name: str
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us: float | None
    errors: int
    slowest: float
    fastest: float
    complaints: tuple[str, ...]
    """The problems of its rounds. `--against` reads this name in reports of older revisions."""
    completed_rate: float | None = None
    backlog: Backlog | None = None
    backlog_growth: float | None = None
    failure: str | None = None


def summarise(name: str, samples: Sequence[Sample]) -> Summary:
    """Return the medians. Rounds that failed are left out."""
    failures = [sample.failure for sample in samples if sample.failure]
    samples = [sample for sample in samples if not sample.failure]
    rates = [sample.rate for sample in samples] or [0.0]
    return Summary(
        name=name,
        rate=median(rates),
        p50_ms=_median([sample.p50_ms for sample in samples]),
        p99_ms=_median([sample.p99_ms for sample in samples]),
        cpu_us=_median([sample.cpu_us for sample in samples]),
        errors=sum(sample.errors for sample in samples),
        slowest=min(rates),
        fastest=max(rates),
        complaints=tuple(filter(None, (sample.problem() for sample in samples))),
        completed_rate=_median([sample.completed_rate for sample in samples]),
        backlog=_median_backlog([sample.backlog for sample in samples]),
        backlog_growth=_median([sample.backlog_growth for sample in samples]),
        failure=failures[0] if failures else None,
    )


def _median_backlog(backlogs: Sequence[Backlog | None]) -> Backlog | None:
    known = [backlog for backlog in backlogs if backlog is not None]
    if not known:
        return None
    begin, middle, end = map(median, zip(*known, strict=True))
    return begin, middle, end


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
