"""The samples of every preset that verifies something."""

from support.sources import by_schemes, by_senders, from_npm
from support.sources.samples import Sample

SAMPLES: tuple[Sample, ...] = (
    *by_schemes.samples(),
    *by_senders.samples(),
    *from_npm.samples(),
)
