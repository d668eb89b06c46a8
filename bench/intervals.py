"""How sure a ratio is: a 95 % interval from pairs of rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import mean, stdev

SLOWER_BELOW = 0.97

# Student's t for a two-sided 95 % interval, by degrees of freedom from 1 on.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Interval:
    """A ratio of speeds (above 1: faster) and the bounds between which it lies, 19 times of 20."""

    ratio: float
    low: float
    high: float

    @property
    def is_slower(self) -> bool:
        """The whole interval lies below the bound: chance does not explain it."""
        return self.high < SLOWER_BELOW

    @property
    def verdict(self) -> str:
        if self.is_slower:
            return "SLOWER"
        return "faster" if self.low > 1.0 else "not slower"


def paired_interval(ratios: Sequence[float]) -> Interval:
    """Return the geometric mean of the ratios with its interval; one pair alone bounds nothing."""
    logs = [log(ratio) for ratio in ratios]
    centre = mean(logs)
    if len(logs) < 2:
        return Interval(exp(centre), 0.0, inf)
    reach = _quantile(len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    return Interval(exp(centre), exp(centre - reach), exp(centre + reach))


def _quantile(freedom: int) -> float:
    """Past the table the last entry stands: slightly wide, never too narrow."""
    return _T[min(freedom, len(_T)) - 1]
