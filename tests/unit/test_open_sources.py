"""A warning for each way in that needs neither a token nor a signature (S16)."""

import pytest

from ackbox.app import warn_of_open_sources
from ackbox.config import Settings, SourceTable

PUBLIC = Settings(host="0.0.0.0")
WITH_TOKEN = Settings.model_validate({"host": "0.0.0.0", "ingest_token": "t" * 20})
SIGNED = SourceTable("github", {"preset": "github", "secret": "env:X"}, "here")
ANYONE = SourceTable("anyone", {"verify": "none"}, "here")
OPENED = SourceTable("webhooks", {"verify": "none"}, "here")
HOST, SOURCE, WEBHOOKS = "Other machines", "Anyone can send events as", "Anyone can send events to"


@pytest.mark.parametrize(
    ("settings", "tables", "beginnings"),
    [
        (PUBLIC, [], [HOST]),
        (PUBLIC, [SIGNED], []),
        (PUBLIC, [ANYONE], [SOURCE, HOST]),
        (PUBLIC, [SIGNED, ANYONE], [SOURCE]),
        (PUBLIC, [SIGNED, OPENED], [WEBHOOKS]),
        (WITH_TOKEN, [SIGNED, OPENED], []),
        (Settings(), [], []),
    ],
)
def test_each_open_way_in_has_a_warning(
    settings: Settings, tables: list[SourceTable], beginnings: list[str]
) -> None:
    lines = warn_of_open_sources(settings, {table.name: table for table in tables})
    assert len(lines) == len(beginnings)
    for line, beginning in zip(lines, beginnings, strict=True):
        assert line.startswith(beginning)
