"""The samples of every preset that verifies something."""

from support.sources import by_schemes, by_senders, from_npm
from support.sources.samples import Sample

SAMPLES: tuple[Sample, ...] = (
    *by_schemes.samples(),
    *by_senders.samples(),
    *from_npm.samples(),
)
SIGNABLE = tuple(sample for sample in SAMPLES if sample.can_sign)
"""The samples that ackbox can sign anew, for a server with a real clock."""
