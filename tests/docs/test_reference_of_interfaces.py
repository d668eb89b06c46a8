"""The reference lists every route with its statuses, and every command with its options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from typer.core import TyperGroup, TyperOption

from ackbox.cli import app
from ackbox.http.connection import (
    KEEP_ALIVE_SECONDS,
    LINGER_BYTES,
    LINGER_SECONDS,
    MIN_BYTES_PER_SECOND,
    READ_RESPONSE_SECONDS,
    REQUEST_SECONDS,
)
from ackbox.http.protocol import HEADER_BYTES, PIPELINED_REQUESTS, URL_BYTES
from docs.pages import REFERENCE, codes, first_codes, rows, sections
from support.servers.server import running

HTTP = REFERENCE / "http.md"
ROUTE = re.compile(r"(GET|POST|PUT|PATCH|DELETE) /\S*")
UNLISTED_ELSEWHERE = "GET /openapi.json"  # FastAPI leaves its own document out of it


# W13
def test_every_route_is_listed_with_its_statuses(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        operations = dict(operations_of(server.get("/openapi.json").json()))
    listed = sections(HTTP)
    assert routes_in(listed) == {*operations, UNLISTED_ELSEWHERE}
    for route, operation in operations.items():
        assert set(operation["responses"]) <= codes(listed[route]), route


def test_the_overview_has_every_route() -> None:
    assert routes_in(first_codes(HTTP.read_text())) == routes_in(sections(HTTP))


# F39
def test_the_limits_of_a_connection_are_the_real_ones() -> None:
    arrival = f"{REQUEST_SECONDS:.0f} s, and 1 s more for every {MIN_BYTES_PER_SECOND // 1024} KiB"
    however = "however much of the request has arrived"
    linger = f"{LINGER_SECONDS:.0f} s, and 1 s more for every {MIN_BYTES_PER_SECOND // 1024} KiB"
    real = {
        "time for a request to arrive": f"{arrival} of its body",
        "time between two pieces of a request": f"{REQUEST_SECONDS:.0f} s, {however}",
        "size of all headers": f"{HEADER_BYTES // 1024} KiB",
        "length of the URL": f"{URL_BYTES // 1024} KiB",
        "requests waiting on one connection": f"{PIPELINED_REQUESTS}",
        "time that a client takes to read a response": f"{READ_RESPONSE_SECONDS:.0f} s",
        "idle keep-alive connection": f"{KEEP_ALIVE_SECONDS:.0f} s",
        "discarding what the client still sends after the last response": (
            f"{linger}; at most {LINGER_BYTES >> 20} MiB in all"
        ),
    }
    listed = {row[0]: row[1] for row in rows(sections(HTTP)["Limits of a connection"])}
    assert real.items() <= listed.items()


def test_every_command_is_listed_with_its_arguments_and_options() -> None:
    listed = sections(REFERENCE / "cli.md")
    commands = dict(commands_of("ackbox", typer.main.get_command(app)))
    assert listed.keys() == commands.keys()
    for name, command in commands.items():
        words = set(first_codes(listed[name]))
        assert arguments_of(command) <= words, name
        assert options_of(command) == {word for word in words if word.startswith("--")}, name


def routes_in(titles: Any) -> set[str]:
    return {title for title in titles if ROUTE.fullmatch(title)}


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def commands_of(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    if isinstance(command, TyperGroup):
        for part, inner in command.commands.items():
            yield from commands_of(f"{name} {part}", inner)


def arguments_of(command: Any) -> set[str]:
    """Return the arguments of a command by the names that its help shows."""
    arguments = (each for each in command.params if not isinstance(each, TyperOption))
    return {str(argument.metavar).strip("[]") for argument in arguments}


def options_of(command: Any) -> set[str]:
    options = (each for each in command.params if isinstance(each, TyperOption))
    return {name for option in options for name in option.opts}
