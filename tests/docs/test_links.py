"""Links work, and pages name things that exist."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT, anchors, first_codes, links, name_of, rows, sections
from docs.requirement_ids import IDS

DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
NAMING = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
ID = re.compile(r"(?<![\w.\-/])[WPLFSNC]\d{1,2}(?![\w.\-])")
CODE_PATH = re.compile(r"`((?:\w+/)*\w+\.(?:py|sql|toml))`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert [link for link in links(page) if "://" not in link and not leads(page, link)] == []


def test_every_page_of_the_docs_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    seen, waiting = {index}, [index]
    while waiting:
        for page in linked_pages(waiting.pop()):
            if page not in seen:
                seen.add(page)
                waiting.append(page)
    assert [name_of(page) for page in PAGES if "docs/" in name_of(page) and page not in seen] == []


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_every_decision_is_in_the_index_under_its_title(page: Path) -> None:
    number, title = page.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)
    assert page.name.startswith(f"{int(number):04}-")
    index = (page.parent / "README.md").read_text()
    assert [f"[{number}]({page.name})", title] in rows(index)


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_every_decision_has_its_four_parts(page: Path) -> None:
    assert list(sections(page)) == ["Context", "Decision", "Consequences", "Evidence"]


def test_every_requirement_and_failure_named_is_one() -> None:
    named = {name_of(path): set(ID.findall(path.read_text())) for path in NAMING}
    assert {path: ids - IDS.keys() for path, ids in named.items() if ids - IDS.keys()} == {}


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = set(CODE_PATH.findall((ROOT / "ARCHITECTURE.md").read_text()))
    assert {name for name in named if not is_there(name)} == set()


def test_the_path_of_an_event_is_one_unbroken_table() -> None:
    """A blank line inside a Markdown table ends it: the rows below are shown as plain text."""
    section = sections(ROOT / "ARCHITECTURE.md")["The path of an event"]
    (table,) = (part for part in section.split("\n\n") if "|" in part)
    steps = [row[0].split(". ")[0] for row in rows(table)[2:]]
    assert len(table.splitlines()) == len(rows(table))
    assert steps == [str(number) for number in range(1, 13)]


def test_the_architecture_draws_the_layers_that_are_enforced() -> None:
    drawing = (ROOT / "ARCHITECTURE.md").read_text().partition("```text")[2].partition("```")[0]
    drawn = [re.findall(r"[a-z_]+", line.split("  ")[0]) for line in undented(drawing)]
    assert [names for names in drawn if names] == enforced_layers()


def test_the_contributors_page_knows_every_make_verb() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)
    listed = first_codes((ROOT / "CONTRIBUTING.md").read_text())
    assert {f"make {verb}" for verb in verbs if verb != "help"} <= set(listed)


def leads(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target)


def linked_pages(page: Path) -> Iterator[Path]:
    for link in links(page):
        target = (page.parent / link.partition("#")[0]).resolve()
        if target.suffix == ".md" and target.exists():
            yield target


def is_there(name: str) -> bool:
    """`STORE/` stands for the package of each database."""
    if name.startswith("STORE/"):
        databases = ("stores/sqlite/", "stores/postgres/")
        return all(is_there(name.replace("STORE/", database)) for database in databases)
    return any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "ackbox"))


def undented(drawing: str) -> Iterator[str]:
    return (line.strip() for line in drawing.splitlines())


def enforced_layers() -> list[list[str]]:
    """Return the layers of import-linter, without optional ones that are absent."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contracts["contracts"][0]["layers"]
    names = [[name.strip() for name in layer.split("|")] for layer in layers]
    there = [[name for name in layer if not name.startswith("(")] for layer in names]
    return [layer for layer in there if layer]
