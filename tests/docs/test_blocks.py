"""The commands of every page do what the page says."""

import re
import time
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest

from docs.damage import EVENTS, make_damaged_ledger
from docs.pages import PAGES, ROOT, Block, blocks, name_of
from docs.terminal import Terminal

TYPED, UNTIL_SHOWN = "sh run", "sh run again"
RUNNABLE = [page for page in PAGES if any(block.info == TYPED for block in blocks(page))]
RECOVER = ROOT / "docs" / "how-to" / "recover.md"
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_a_page_works_as_printed(page: Path, terminal: Terminal, tmp_path: Path) -> None:
    if page == RECOVER:
        make_damaged_ledger(tmp_path / "ackbox.db")
    for block, expected in with_expected(page):
        if name := named_file(block):
            terminal.save(name, block.text)
        elif block.info == TYPED:
            assert_shown(expected, terminal.type(block.text))
        elif block.info == UNTIL_SHOWN:
            type_until_shown(terminal, block, expected)


# F16
def test_salvage_loses_only_events_of_the_damaged_page(terminal: Terminal, tmp_path: Path) -> None:
    make_damaged_ledger(tmp_path / "ackbox.db")
    script = next(block.text for block in blocks(RECOVER) if named_file(block) == "salvage.py")
    terminal.save("salvage.py", script)
    terminal.type("ACKBOX_DB_PATH=new.db .venv/bin/ackbox migrate")
    output = terminal.type(".venv/bin/python salvage.py ackbox.db new.db")
    saved, unreadable = map(int, re.findall(r"\d+", output))
    assert saved + unreadable == EVENTS
    assert 0 < unreadable < 20
    listed = terminal.type("ACKBOX_DB_PATH=new.db .venv/bin/ackbox events list --limit 1000 --json")
    assert listed.count('"payload_sha256"') == saved


def test_the_first_screen_and_the_tutorial_are_among_them() -> None:
    assert {"README.md", "docs/tutorial/first-event.md"} <= set(map(name_of, RUNNABLE))


def with_expected(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Yield each block with the expected output that follows it directly."""
    all_blocks = list(blocks(page))
    for block, after in zip(all_blocks, [*all_blocks[1:], None], strict=True):
        shows = after is not None and after.follows and after.info == "text"
        yield block, after.text if after is not None and shows else None


def named_file(block: Block) -> str | None:
    match = re.search(r" file=(\S+)$", block.info)
    return match[1] if match else None


def type_until_shown(terminal: Terminal, block: Block, expected: str | None) -> None:
    """Repeat a command until it shows what happens in the background."""
    end = time.monotonic() + 20
    while not is_shown(expected, output := terminal.type(block.text)):
        assert time.monotonic() < end, f"expected\n{expected}\ncame\n{output}"
        time.sleep(0.3)  # what the page waits for needs the cores too


def is_shown(expected: str | None, output: str) -> bool:
    flags = ELLIPSIS | NORMALIZE_WHITESPACE
    return expected is None or OutputChecker().check_output(
        neutral(expected), neutral(output), flags
    )


def assert_shown(expected: str | None, output: str) -> None:
    assert is_shown(expected, output), f"expected\n{expected}\ncame\n{output}"


def neutral(text: str) -> str:
    """Replace ids and times, and end the text with a line feed."""
    return TIME.sub("<time>", ID.sub("<id>", text)).strip() + "\n"
