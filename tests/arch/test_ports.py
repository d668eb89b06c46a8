"""The seam between the core and a database stays small, and no method of it is empty."""

import ast
import inspect
from pathlib import Path
from textwrap import dedent
from typing import Any, Protocol

import pytest

from ackbox import ports
from ackbox.app import backends
from ackbox.stores.postgres.store import PostgresStore
from ackbox.stores.postgres.write.queue import PostgresQueue
from ackbox.stores.sqlite.store import SqliteStore

MOST_MEMBERS = {ports: 61, backends: 18}
"""How many members all protocols of a module may have together, without inherited ones."""
MOST_LINES = 600


def protocols(module: Any) -> list[type]:
    classes = [item for item in vars(module).values() if inspect.isclass(item)]
    own = [item for item in classes if item.__module__.startswith(module.__name__)]
    return [item for item in own if Protocol in item.__bases__]


def members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


@pytest.mark.parametrize("module", MOST_MEMBERS, ids=lambda module: module.__name__)
def test_the_protocols_have_few_members(module: Any) -> None:
    counts = {protocol.__name__: len(members(protocol)) for protocol in protocols(module)}
    assert counts
    assert sum(counts.values()) <= MOST_MEMBERS[module], counts


def test_the_ports_can_be_read_at_one_sitting() -> None:
    files = Path(ports.__file__).parent.glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= MOST_LINES


@pytest.mark.parametrize(
    ("implementation", "port"),
    [
        (SqliteStore, ports.Store),
        (PostgresStore, ports.Store),
        (PostgresQueue, ports.EventQueue),
    ],
    ids=lambda item: item.__name__,
)
def test_no_method_of_a_port_is_empty(implementation: type, port: type) -> None:
    """A method that one database leaves empty belongs to the services of the other."""
    names = [name for base in port.__mro__ for name in members(base)]
    methods = [getattr(implementation, name, None) for name in names]
    empty = [
        method.__name__ for method in methods if inspect.isfunction(method) and is_empty(method)
    ]
    assert empty == []


def is_empty(method: Any) -> bool:
    (definition,) = ast.parse(dedent(inspect.getsource(method))).body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    return not [line for line in definition.body if not is_without_effect(line)]


def is_without_effect(line: ast.stmt) -> bool:
    match line:
        case ast.Pass() | ast.Expr(ast.Constant()) | ast.Return(None | ast.Constant()):
            return True
        case _:
            return False
