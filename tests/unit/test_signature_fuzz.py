"""A short run of the fuzz on signatures; `make chaos` has a long one."""

from support.sources.every_sample import SAMPLES
from support.sources.fuzz import fuzz


# F46
def test_random_changes_are_refused_with_401() -> None:
    counts = fuzz(SAMPLES, cases=4000, seed=46)
    assert sum(counts.values()) == 4000
    assert counts["401 bad_signature"] > 1000
    assert counts.keys() >= {"401 bad_time", "401 malformed", "401 unsigned", "accepted"}
