"""The report of a load generator, which it prints as one line of JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.failure import BenchFailed


@dataclass(frozen=True)
class LoadReport:
    """`acked` counts events, `requests` counts responses; they differ on the batch route only.

    `run` marks the keys of this load; `in_flight` events were sent, but not waited for.
    """

    requests: int
    acked: int
    errors: int
    seconds: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    in_flight: int
    run: str

    @property
    def rate(self) -> float:
        return self.acked / self.seconds


def percentile_ms(sorted_seconds: Sequence[float], share: float) -> float:
    if not sorted_seconds:
        return 0.0
    rank = min(len(sorted_seconds) - 1, int(len(sorted_seconds) * share))
    return sorted_seconds[rank] * 1000


def dump(report: LoadReport) -> str:
    return json.dumps(asdict(report))


def parse(output: str, **known: str | int) -> LoadReport:
    """Read the last line that is a JSON object: wrk prints its own summary before it."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise BenchFailed(f"the load generator reported nothing: {output.strip()}")
    return LoadReport(**{**json.loads(lines[-1]), **known})
