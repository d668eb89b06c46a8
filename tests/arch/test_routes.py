"""The table of routes is the only place for a path."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ackbox.http.routes import Route

SOURCE = Path(__file__).parents[2] / "src" / "ackbox"
TABLE = SOURCE / "http" / "routes.py"
FIRST_SEGMENTS = {route.path.split("/")[1] for route in Route}
A_PATH = re.compile(rf"/({'|'.join(map(re.escape, sorted(FIRST_SEGMENTS)))})(/.*)?")


def paths_in(source: str) -> Iterator[str]:
    """Yield the strings that begin with the path of a route. Docstrings are prose."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose and is_path(node.value):
            yield str(node.value)


def is_path(value: object) -> bool:
    return isinstance(value, str) and A_PATH.fullmatch(value) is not None


def test_a_path_occurs_in_the_table_of_routes_only() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): paths
        for path in SOURCE.rglob("*.py")
        if path != TABLE and (paths := list(paths_in(path.read_text())))
    }
    assert not found, "name the row of http/routes.py instead"


def test_a_path_is_found_in_any_string() -> None:
    for source in ('get("/health")', 'f"{url}/api/events/{id}"', 'x = {"/webhooks": 1}'):
        assert list(paths_in(source)), source
    assert not list(paths_in('"""/health is open."""'))


def test_a_server_starts_without_fastapi() -> None:
    """It takes longer to import than the rest: only the routes that need it load it."""
    code = (
        "import sys, ackbox.inbox, ackbox.cli.serve\n"
        "print({'fastapi', 'starlette', 'ackbox.http.openapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
