"""How long to wait before trying again: pure arithmetic, chance passed in."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain, repeat

from msgspec import Struct

Uniform = Callable[[float, float], float]
"""`random.uniform`, or a test's own."""

_FIRST, _CEILING = 0.1, 5.0
_LARGEST_POWER = 64


def ingest_delays(uniform: Uniform) -> Iterator[float]:
    """L9: at once, then 100 ms doubling to 5 s with full jitter, then 5 s plus jitter, for ever."""
    doubling = (_FIRST * 2**step for step in range(6))
    return chain(
        (0.0,),
        (uniform(0, delay) for delay in doubling),
        (_CEILING + uniform(0, 1) for _ in repeat(None)),
    )


class RetryPolicy(Struct, frozen=True):
    """W10: how long a failed run waits for its next."""

    base: timedelta
    most: timedelta
    strategy: str
    jitter: str

    def delay(self, attempts: int, uniform: Uniform) -> timedelta:
        """After so many attempts, the one that just failed among them."""
        full = min(self._growth(attempts), self.most.total_seconds())
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
