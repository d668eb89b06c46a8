"""One module for each sender, and the table of all of them."""

from collections.abc import Mapping

from ackbox.sources.preset import Preset

PRESETS: Mapping[str, Preset] = {}
"""Every preset by the name that `preset = "NAME"` gives in a source's table."""
