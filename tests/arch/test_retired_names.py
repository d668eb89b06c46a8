"""A name that was given up, because it had several meanings or had to be decoded, stays away.

The glossary (docs/reference/glossary.md) has the words that replaced these names.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from ackbox.config import Settings

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
SQL = sorted((ROOT / "src").rglob("*.sql"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

MODULES = frozenset(
    (
        *("homes", "doors", "places", "questions", "event_questions", "answers", "picks"),
        *("carried", "leaving", "arriving", "condition", "surroundings", "policies", "rules"),
        *("upkeep", "holding", "stories", "watch", "checkup", "copying", "running", "operating"),
    )
)
GERUNDS_THAT_ARE_NOUNS = frozenset({"nesting", "paging", "testing"})

NAMES = frozenset(
    (
        *("Home", "find_home", "open_doors", "Door", "SourcePlace", "parse_place"),
        *("check_question", "Answer", "Answered", "Upkeep", "put_back", "bury", "Buried"),
        *("buried_at", "_bury", "Again", "Walk", "give_back", "fold_tallies", "has_books"),
        *("StoreTrouble", "Watch", "EventStory", "HURRIED", "PUT_BACK", "Parcel", "steer"),
        *("settle_in", "look_back", "_look_onward", "_look_at_all", "last_words", "deaf"),
        *("Numbers", "Rules", "Removed", "forget"),
    )
)

# Wherever they are part of an identifier, a block, a column, a metric, a message or a page.
WORDS = frozenset(
    (
        *("agenda", "tally", "tallies", "parcel", "parcels", "hurried", "bury", "buried"),
        *("story", "stories", "bell", "upkeep", "doors", "ripe", "books"),
    )
)

# Words of everyday English: as a whole name in the source they say nothing about the thing.
VAGUE = frozenset(
    (
        *("most", "asked", "said", "told", "one", "found", "place", "answer", "look", "news"),
        *("otherwise", "announce", "tell", "hear", "ring", "door", "home", "trouble"),
        *("question", "watch", "walk"),
    )
)


def test_no_module_has_a_retired_name() -> None:
    assert [path.name for path in SOURCES if path.stem in MODULES] == []


def test_a_module_is_named_by_a_noun() -> None:
    gerunds = {path.stem for path in SOURCES if path.stem.endswith("ing")}
    assert gerunds - GERUNDS_THAT_ARE_NOUNS == set()


def test_no_identifier_is_a_retired_name() -> None:
    retired = (
        f"{location}: {name}"
        for location, name in identifiers_of([*SOURCES, *TESTS])
        if name in NAMES or WORDS & words_of(name)
    )
    assert list(retired) == []


def test_no_name_in_the_source_is_a_vague_word() -> None:
    vague = (
        f"{location}: {name}"
        for location, name in identifiers_of(SOURCES)
        if name.strip("_").lower() in VAGUE
    )
    assert list(vague) == []


# The position of a source is its cursor: a checkpoint is of SQLite's write-ahead log.
def test_only_the_sqlite_store_has_checkpoints() -> None:
    sources = [path for path in SOURCES if "sqlite" not in path.parts]
    checkpoints = (
        f"{location}: {name}"
        for location, name in identifiers_of(sources)
        if {"checkpoint", "checkpoints"} & words_of(name)
    )
    assert list(checkpoints) == []


def test_no_comment_has_a_retired_word() -> None:
    retired = (
        f"{path.relative_to(ROOT)}: {comment}"
        for path in [*SOURCES, *TESTS]
        for comment in comments_of(path.read_text())
        if WORDS & words_of(comment)
    )
    assert list(retired) == []


def test_no_message_has_a_retired_word() -> None:
    retired = (
        f"{path.relative_to(ROOT)}: {text}"
        for path in SOURCES
        for text in texts_of(ast.parse(path.read_text()))
        if WORDS & words_of(text)
    )
    assert list(retired) == []


def test_no_sql_has_a_retired_word() -> None:
    retired = WORDS | {"checkpoints", "heartbeat", "forget", "door", "put_back", "buried_at"}
    words = (
        f"{path.relative_to(ROOT)}: {word}"
        for path in SQL
        for word in re.findall(r"\w+", path.read_text().lower())
        if word in retired
    )
    assert list(words) == []


def test_no_setting_takes_a_retired_value() -> None:
    assert "hold" not in get_args(Settings.model_fields["unhandled"].annotation)


# N25
def test_no_page_has_a_retired_name() -> None:
    prose = {"Answer", "Again", "Home", "Walk", "Watch", "Door", "bury"}
    unambiguous = NAMES - prose - {"Numbers", "Rules", "Removed", "forget"}
    retired = (
        f"{path.relative_to(ROOT)}: {word}"
        for path in PAGES
        for word in re.findall(r"\w+", path.read_text())
        if word in unambiguous or word.lower() in WORDS
    )
    assert list(retired) == []


SCANNED = """
import a.b as c
from d import e as f
try:
    global g
except OSError as h:  # of i
    match j:
        case K(l=m, n=[*o]) | {"p": _, **q}:
            r.s = t(u=lambda v: w)
"""


def test_the_scan_sees_every_name_and_comment() -> None:
    names = {name for node in ast.walk(ast.parse(SCANNED)) for name in names_of(node)}
    assert names == {"OSError", "K", *"abcefghjlmnoqrstuvw"}
    assert comments_of(SCANNED) == ["# of i"]


def identifiers_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield every name that the code defines, passes or reaches for, and where it does so."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            for name in names_of(node):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", name


NAME_FIELDS = ("name", "asname", "arg", "id", "attr", "rest", "kwd_attrs", "names")
"""The fields of syntax nodes that hold names: of definitions, imports, captures, accesses."""


def names_of(node: ast.AST) -> list[str]:
    names: list[str] = []
    for field in NAME_FIELDS:
        value = getattr(node, field, None)
        values = value if isinstance(value, list) else [value]
        names += [part for text in values if isinstance(text, str) for part in text.split(".")]
    return names


def comments_of(code: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def words_of(name: str) -> set[str]:
    """Split snake_case, CamelCase and prose into lower-case words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def texts_of(module: ast.Module) -> Iterator[str]:
    """Yield every text of the module, docstrings included."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
