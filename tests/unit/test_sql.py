"""Blocks and parts of `.sql` files."""

import pytest

from ackbox.stores.sql import split_blocks

FILE = """-- What this file is about.

-- part: wanted
    AND a = :a
    AND b = :b

-- name: newest
SELECT 1 WHERE true
    -- here: wanted
ORDER BY 1 DESC

-- name: oldest
SELECT 1 WHERE true
    -- here: wanted
ORDER BY 1
"""
WANTED = "    AND a = :a\n    AND b = :b"


def test_a_part_is_inserted_into_each_block_that_names_it_and_is_no_block() -> None:
    assert split_blocks(FILE) == {
        "newest": f"SELECT 1 WHERE true\n{WANTED}\nORDER BY 1 DESC",
        "oldest": f"SELECT 1 WHERE true\n{WANTED}\nORDER BY 1",
    }


def test_a_part_may_contain_a_part_that_the_caller_gives() -> None:
    text = "-- part: claiming\nRETURNING\n    -- here: columns\n-- name: claim\n-- here: claiming\n"
    assert split_blocks(text, {"columns": "a, b"}) == {"claim": "RETURNING\na, b"}


def test_the_description_of_a_block_is_left_out() -> None:
    text = "-- name: a\n-- Return one.\n-- Here is why.\nSELECT 1  -- one\n-- end"
    assert split_blocks(text) == {"a": "SELECT 1  -- one\n-- end"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "SQL name a is defined twice"),
        ("-- part: a\nSELECT 1\n-- part: a\nSELECT 2", "SQL part a is defined twice"),
        ("-- name: a\n-- here: b\n", "SQL part b is not defined in the file"),
    ],
)
def test_a_duplicate_or_missing_name_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_blocks(text)
