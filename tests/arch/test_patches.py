"""Tests pass times and limits in, and do not patch the constants that hold them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
IN_A_SERVER = re.compile(r"ackbox[a-z_.]*:(_?[A-Z][A-Z0-9_]+)")
CLOCKS = {"monotonic", "sleep", "utc_now"}
ALLOWED = {
    # A full window needs thousands of events, in every backend.
    ("contract/test_event_detail.py", "SOURCE_WINDOW"),
    ("contract/test_event_detail.py", "WINDOW"),
    ("store/test_reader.py", "WINDOW"),
    # Limits of a server in another process, which `support/servers/serve.py` starts.
    ("http/test_events_api.py", "WINDOW"),
    ("http/test_lifecycle.py", "LOW_BYTES"),
    ("http/test_slow_peers.py", "KEEP_ALIVE_SECONDS"),
    ("http/test_slow_peers.py", "LINGER_SECONDS"),
    ("http/test_slow_peers.py", "READ_RESPONSE_SECONDS"),
    ("http/test_slow_peers.py", "REQUEST_SECONDS"),
}
"""The constants that a test patches. Do not add to them: give the class or function an argument
with the constant as its default, as `stores/sqlite/limits.py` does."""


def patched_names(tree: ast.AST) -> Iterator[str]:
    """Return the name that each `setattr` of pytest replaces, and each constant that a server of a
    test is started with. The arguments of `setattr` are an object and a name, or one dotted name,
    and the new value."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr"),
                args=[_, ast.Constant(str(name)), _] | [ast.Constant(str(name)), _],
            ):
                yield name.rpartition(".")[2]
            case ast.Constant(str(text)) if found := IN_A_SERVER.fullmatch(text):
                yield found[1]
            case _:
                pass


def patches() -> set[tuple[str, str]]:
    return {
        (file.relative_to(TESTS).as_posix(), name)
        for file in TESTS.rglob("*.py")
        if file != Path(__file__)
        for name in patched_names(ast.parse(file.read_text()))
        if CONSTANT.fullmatch(name) or name in CLOCKS
    }


def test_no_other_constant_is_patched() -> None:
    assert patches() - ALLOWED == set()


def test_each_allowed_patch_is_still_used() -> None:
    assert ALLOWED - patches() == set()


def test_a_patched_constant_is_found_in_every_form() -> None:
    source = """
m.setattr(module, "_SECONDS", 1)
m.setattr("a.b.LIMIT", 2)
m.setattr(os, "access", f)
{"set": {"ackbox.a.b:_GROUPS": 1}}
"""
    names = sorted(patched_names(ast.parse(source)))
    assert names == ["LIMIT", "_GROUPS", "_SECONDS", "access"]
