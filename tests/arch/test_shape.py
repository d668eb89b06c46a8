"""The shape of the code: short functions in modules that fit in a few screens (W18)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_no_module_is_past_500_lines() -> None:
    counted = {path: len(path.read_text().splitlines()) for path in SOURCES}
    assert [f"{path.name}: {count}" for path, count in counted.items() if count > 500] == []


def test_no_function_is_past_40_lines() -> None:
    assert [name for name, lines in functions() if lines > 40] == []


def test_half_of_the_functions_have_at_most_7_lines_and_nine_in_ten_at_most_16() -> None:
    lines = [lines for _, lines in functions()]
    assert median(lines) <= 7
    assert quantiles(lines, n=10)[-1] <= 16


def test_no_file_is_divided_by_banners() -> None:
    """A file that needs headings is two files."""
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
    banner = re.compile(r"^ *# ?[-=#]{3}", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in files if banner.search(path.read_text())] == []


def functions() -> Iterator[tuple[str, int]]:
    """Yield each function of the source with its number of lines, signature and docstring
    included."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                yield name, (node.end_lineno or node.lineno) - node.lineno + 1
