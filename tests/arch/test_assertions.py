"""Every test says what it expects: it asserts, or calls something that fails the test."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAILING_CALLS = frozenset({"raises", "warns", "fail", "eventually", "until"})


def test_every_test_asserts_something() -> None:
    silent = [
        f"{path.relative_to(TESTS)}:{test.lineno} {test.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for test in find_tests(path.read_text())
        if not asserts(test)
    ]
    assert silent == []


def test_a_test_that_only_calls_the_code_is_found() -> None:
    silent, loud = find_tests(
        """
def test_closing_twice() -> None:
    store.close()
    store.close()

async def test_a_refusal() -> None:
    assert_problem(await post())
"""
    )
    assert (asserts(silent), asserts(loud)) == (False, True)


def find_tests(code: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node


def asserts(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and fails(node))
        for node in ast.walk(test)
    )


def fails(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name in FAILING_CALLS or name.startswith("assert_")
