"""Delays after a failed run (W10)."""

import random
from datetime import timedelta

import pytest

from ackbox.retry import RetryPolicy


def policy(strategy: str, jitter: str = "none") -> RetryPolicy:
    return RetryPolicy(timedelta(seconds=5), timedelta(seconds=300), strategy, jitter)


@pytest.mark.parametrize(
    ("strategy", "seconds"),
    [
        ("exponential", [10, 20, 40, 80, 160, 300, 300]),
        ("linear", [5, 10, 15, 20, 25, 30, 35]),
        ("constant", [5, 5, 5, 5, 5, 5, 5]),
    ],
)
def test_the_delay_grows_as_the_strategy_says(strategy: str, seconds: list[float]) -> None:
    delays = [policy(strategy).delay(n, random.uniform) for n in range(1, 8)]
    assert [delay.total_seconds() for delay in delays] == seconds


def test_full_jitter_is_uniform_between_zero_and_the_delay() -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return high / 4

    assert policy("exponential", "full").delay(1, uniform) == timedelta(seconds=2.5)
    assert bounds == [(0, 10)]


def test_the_maximum_applies_before_the_jitter() -> None:
    delay = policy("exponential", "full").delay(50, lambda low, high: high)
    assert delay == timedelta(seconds=300)


@pytest.mark.parametrize("strategy", ["exponential", "linear", "constant"])
def test_the_delay_is_bounded_for_any_number_of_attempts(strategy: str) -> None:
    assert policy(strategy).delay(10**9, random.uniform) <= timedelta(seconds=300)
