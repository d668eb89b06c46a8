"""Help texts, docstrings and messages are sentences that need one reading (N25)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ackbox.cli import app

SOURCE = Path(__file__).parents[2] / "src" / "ackbox"
BARE = re.compile(
    r"(And|As|At|Beside|But|By|For|From|In|Of|On|Or|So|That|To|Until|What|Whatever|Where|Which|Who"
    r"|Whoever|With|Without)\b"
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


# N25
@pytest.mark.parametrize(
    "text", ["Of one event.", "Or the lock is lost.", "What a command prints."]
)
def test_a_bare_beginning_is_recognized(text: str) -> None:
    assert BARE.match(text)
    assert not BARE.match(f"Return {text.lower()}")


# N25
def test_no_help_text_begins_with_a_bare_preposition_or_relative() -> None:
    texts = list(help_texts(typer.main.get_command(app)))
    assert len(texts) > 90
    assert [text for text in texts if BARE.match(text)] == []


# N25
def test_every_help_text_is_a_sentence_that_ends() -> None:
    texts = help_texts(typer.main.get_command(app))
    assert [text for text in texts if not re.search(r"[.*]$", text)] == []


# N25
def test_no_docstring_begins_with_a_bare_preposition_or_relative() -> None:
    bare = [
        f"{path.relative_to(SOURCE)}: {text.splitlines()[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for text in docstrings(path)
        if BARE.match(text)
    ]
    assert bare == []


# N25
def test_no_error_message_begins_with_a_bare_preposition_or_relative() -> None:
    messages = [text for path in sorted(SOURCE.rglob("*.py")) for text in raised_messages(path)]
    assert len(messages) > 100
    assert [text for text in messages if BARE.match(text)] == []


def help_texts(command: Any) -> Iterator[str]:
    yield from filter(None, [command.help, *(option.help for option in command.params)])
    for inner in getattr(command, "commands", {}).values():
        yield from help_texts(inner)


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield text


def raised_messages(path: Path) -> Iterator[str]:
    """Yield the beginning of each message that the module raises."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = node.exc.args[0]
            start = message.values[0] if isinstance(message, ast.JoinedStr) else message
            if isinstance(start, ast.Constant) and isinstance(start.value, str):
                yield start.value
