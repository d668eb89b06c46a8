"""The samples of every preset that verifies something."""

from support.sources import by_schemes, from_npm
from support.sources.samples import Sample

SAMPLES: tuple[Sample, ...] = (*by_schemes.samples(), *from_npm.samples())
