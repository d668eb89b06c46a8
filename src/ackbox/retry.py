"""Delays before a retry: pure arithmetic, with the randomness passed in."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain, repeat

from msgspec import Struct

Uniform = Callable[[float, float], float]
"""`random.uniform`, or a test's replacement for it."""

_FIRST, _CEILING = 0.1, 5.0
_LARGEST_POWER = 64


def ingest_delays(uniform: Uniform) -> Iterator[float]:
    """Yield the delays of L9: none, then 100 ms doubling to 5 s with full jitter, then 5 s plus
    jitter without end."""
    doubling = (_FIRST * 2**step for step in range(6))
    return chain(
        (0.0,),
        (uniform(0, delay) for delay in doubling),
        (_CEILING + uniform(0, 1) for _ in repeat(None)),
    )


class RetryPolicy(Struct, frozen=True):
    """W10: how long an event waits after a failed run."""

    base: timedelta
    max_delay: timedelta
    strategy: str
    jitter: str

    def delay(self, attempts: int, uniform: Uniform) -> timedelta:
        """Return the delay after `attempts` attempts, the last of which just failed."""
        full = min(self._growth(attempts), self.max_delay.total_seconds())
        return timedelta(seconds=uniform(0, full) if self.jitter == "full" else full)

    def _growth(self, attempts: int) -> float:
        base = self.base.total_seconds()
        match self.strategy:
            case "exponential":
                return base * 2.0 ** min(attempts, _LARGEST_POWER)
            case "linear":
                return base * attempts
            case _:
                return base
