"""Delays between attempts to store a batch (L9)."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from ackbox.retry import ingest_delays


def longest(low: float, high: float) -> float:
    return high


def shortest(low: float, high: float) -> float:
    return low


def test_at_once_then_doubling_from_100_ms_to_5_s_then_5_s_plus_jitter() -> None:  # L9
    first = list(islice(ingest_delays(longest), 10))
    assert first == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.0, 6.0, 6.0]


def test_jitter_is_full_until_the_ceiling_and_only_added_after_it() -> None:  # L9
    assert list(islice(ingest_delays(shortest), 9)) == [0.0] * 7 + [5.0] * 2


@given(st.randoms(use_true_random=False), st.integers(0, 200))
def test_no_delay_is_negative_or_past_the_ceiling_and_its_jitter(random: object, n: int) -> None:
    delays = ingest_delays(random.uniform)  # type: ignore[attr-defined]
    delay = next(islice(delays, n, None))
    assert 0.0 <= delay <= 6.0
    assert n < 7 or delay >= 5.0


def test_each_batch_starts_with_no_delay() -> None:
    used = ingest_delays(longest)
    list(islice(used, 9))
    assert next(ingest_delays(longest)) == 0.0
