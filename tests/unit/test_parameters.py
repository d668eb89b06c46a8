"""`:name` becomes `$n`, but only where it is a parameter."""

import pytest

from ackbox.errors import InvalidStatement
from ackbox.stores.postgres.parameters import compile_named, tokens


@pytest.mark.parametrize(
    ("sql", "expected", "names"),
    [
        ("SELECT :a", "SELECT $1", ["a"]),
        ("SELECT :a, :b, :a", "SELECT $1, $2, $1", ["a", "b"]),
        ("SELECT :a::text", "SELECT $1::text", ["a"]),
        ("SELECT x::text", "SELECT x::text", []),
        ("SELECT ':a'", "SELECT ':a'", []),
        ("SELECT 'it''s :a', :b", "SELECT 'it''s :a', $1", ["b"]),
        (r"SELECT e'\':a', :b", r"SELECT e'\':a', $1", ["b"]),
        (r"SELECT '\', :b", r"SELECT '\', $1", ["b"]),
        ('SELECT ":a", :b', 'SELECT ":a", $1', ["b"]),
        ('SELECT "a"":b"', 'SELECT "a"":b"', []),
        ("SELECT 1 -- :a\n, :b", "SELECT 1 -- :a\n, $1", ["b"]),
        ("SELECT 1 -- :a\r, :b", "SELECT 1 -- :a\r, $1", ["b"]),  # S11
        ("SELECT /* :a /* :b */ :c */ :d", "SELECT /* :a /* :b */ :c */ $1", ["d"]),
        ("SELECT /* :a", "SELECT /* :a", []),
        ("SELECT $$ :a $$, :b", "SELECT $$ :a $$, $1", ["b"]),
        ("SELECT $x$ :a $$ $x$, :b", "SELECT $x$ :a $$ $x$, $1", ["b"]),
        ("SELECT a[1:2], :b", "SELECT a[1:2], $1", ["b"]),
        ("SELECT :größe", "SELECT $1", ["größe"]),
        ("SELECT :a:b", "SELECT $1$2", ["a", "b"]),
        ("SELECT : a", "SELECT : a", []),
        ("", "", []),
    ],
)
def test_a_name_is_replaced_only_where_it_is_a_parameter(
    sql: str, expected: str, names: list[str]
) -> None:
    compiled = compile_named(sql)
    assert (compiled.sql, list(compiled.names)) == (expected, names)


def test_tokens_joined_are_the_statement() -> None:
    sql = "SELECT 'a' || \"b\" /* c */ -- d\n, $1, :e::text, $$f$$, 1.5e3 <> ALL (x)"
    assert "".join(token.text for token in tokens(sql)) == sql


def test_values_are_ordered_by_their_numbers() -> None:
    assert compile_named("SELECT :b, :a, :b").values({"a": 1, "b": 2, "c": 3}) == [2, 1]


def test_a_missing_value_is_named() -> None:
    with pytest.raises(InvalidStatement, match=":b was not given"):
        compile_named("SELECT :a, :b").values({"a": 1})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("invalid input for query argument $2: '$1'\n(no)", "invalid input for :b: '$1' (no)"),
        ("could not determine data type of parameter $1", "could not determine data type of :a"),
        ("no parameter $7", "no parameter $7"),
        ('syntax error at "$1"', 'syntax error at "$1"'),
    ],
)
def test_a_position_in_an_error_becomes_the_name_that_was_written(
    message: str, expected: str
) -> None:
    assert compile_named("SELECT :a, :b").by_name(message) == expected
