"""The pages of the documentation and their content."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    info: str
    text: str
    follows: bool
    """Only white space is between this block and the one before."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    end = -1
    for fence in _FENCE.finditer(text):
        follows = end >= 0 and not text[end : fence.start()].strip()
        yield Block(fence["info"].strip(), fence["text"], follows)
        end = fence.end()


def prose(page: Path) -> str:
    """Return the page without its blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, formed as code hosts form them."""
    titles = (title for _, title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def sections(page: Path) -> dict[str, str]:
    """Return the text under each heading of the second level."""
    _, *parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, including headings and rulers."""
    return [[cell.strip() for cell in row.split("|")] for row in _ROW.findall(text)]


def first_codes(text: str) -> list[str]:
    """Return the inline code in the first column of the tables."""
    return [code for row in rows(text) for code in _CODE.findall(row[0])]


def codes(text: str) -> set[str]:
    return set(_CODE.findall(text))
