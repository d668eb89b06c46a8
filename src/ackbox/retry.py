"""How long to wait before trying again: pure arithmetic, chance passed in."""

from collections.abc import Callable, Iterator
from itertools import chain, repeat

Uniform = Callable[[float, float], float]
"""`random.uniform`, or a test's own."""

_FIRST, _CEILING = 0.1, 5.0


def ingest_delays(uniform: Uniform) -> Iterator[float]:
    """L9: at once, then 100 ms doubling to 5 s with full jitter, then 5 s plus jitter, for ever."""
    doubling = (_FIRST * 2**step for step in range(6))
    return chain(
        (0.0,),
        (uniform(0, delay) for delay in doubling),
        (_CEILING + uniform(0, 1) for _ in repeat(None)),
    )
