"""A message that tells its reader to set a variable names one that is read everywhere. N3."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ackbox.config import Settings

SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
SETTING = "|".join(name.upper() for name in Settings.model_fields)
REMEDY = re.compile(rf"\b(?:set|choose|raise|another) (?:{SETTING})\b", re.IGNORECASE)
COMMAND = re.compile(rf"(?<![A-Z_])(?:{SETTING})=\S+ ackbox\b")


# N3: an inbox inside another app does not read `API_TOKEN`, and `ACKBOX_API_TOKEN` wins anyway.
def test_a_remedy_names_the_prefixed_variable() -> None:
    assert [text for text in texts() if REMEDY.search(text) or COMMAND.search(text)] == []


def texts() -> Iterator[str]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
