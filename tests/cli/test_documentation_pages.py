"""Messages name documentation pages, or their addresses if `DOCS_URL` is set (N8)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackbox.documentation import add_addresses, name_page
from support.servers.cli import Cli

ROOT = Path(__file__).parents[2]
REPO_FILE = re.compile(r"\bdocs/|\w\.md\b|\bREADME\b|\bMakefile\b|`make |\bpyproject\b")
SITE = "https://docs.example/ackbox"


# N8
def test_no_message_names_a_file_that_a_wheel_does_not_have() -> None:
    messages = [*strings(ROOT / "src")]
    assert len(messages) > 1000
    assert [text for text in messages if REPO_FILE.search(text)] == []


# N8
def test_every_page_that_a_message_names_is_there() -> None:
    calls = (node for node in nodes(ROOT / "src") if isinstance(node, ast.Call))
    pages = {ast.literal_eval(call.args[0]) for call in calls if is_name_page(call)}
    assert "how-to/recover" in pages
    assert [page for page in pages if not (ROOT / f"docs/{page}.md").is_file()] == []


# N8
@pytest.mark.parametrize("docs_url", [SITE, f"{SITE}/"])
def test_docs_url_turns_a_page_into_an_address(docs_url: str) -> None:
    text = f"Restore a backup; see {name_page('how-to/recover')}."
    assert add_addresses(text, docs_url) == f"Restore a backup; see {SITE}/how-to/recover."
    assert add_addresses(text, None) == text
    assert "how-to/recover" in text


# N8
@pytest.mark.parametrize("command", ["migrate --check", "doctor", "doctor --json"])
def test_a_command_prints_the_address_of_a_page(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "ackbox.db").write_bytes(b"x" * 9000)
    with_site = cli(*command.split(), DOCS_URL=SITE)
    without = cli(*command.split())
    assert f"{SITE}/how-to/recover" in with_site.out + with_site.err
    assert name_page("how-to/recover") in without.out + without.err


# N8
def test_a_bad_setting_is_explained_without_an_address(cli: Cli) -> None:
    done = cli("doctor", PORT="http", DOCS_URL=SITE)
    assert name_page("reference/settings") in done.out


def is_name_page(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "name_page"


def strings(folder: Path) -> Iterator[str]:
    """Yield the texts of the code: no docstrings and no comments."""
    for node in nodes(folder):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and not isinstance(node, ast.Expr):
                yield from [child.value] if isinstance(child.value, str) else []


def nodes(folder: Path) -> Iterator[ast.AST]:
    for path in folder.rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))
