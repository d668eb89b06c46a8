"""Where a run failed: a place in the user's own code, and not a word of what was said there."""

import json
from collections.abc import Callable
from types import CodeType

from ackbox.model import from_text
from ackbox.worker.places import where_of

LIBRARY = "/venv/lib/python3.11/site-packages/shop/client.py"


def raised_by(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("it raised nothing")


def without_outer(error: BaseException, frames: int) -> BaseException:
    for _ in range(frames):
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
    assert error.__traceback__ is not None
    return error


def raise_secret() -> None:
    raise ValueError("secret")


def call_standard_library() -> None:
    json.loads("{secret")


def call_library(file: str = LIBRARY) -> None:
    code = compile("def send():\n    raise ValueError('secret')\n", file, "exec")
    made: dict[str, Callable[[], None]] = {}
    exec(code, made)  # noqa: S102 - a library, for want of one that fails
    made["send"]()


def line_of(call: Callable[[], object], offset: int = 1) -> int:
    code: CodeType = call.__code__
    return code.co_firstlineno + offset


def test_the_innermost_call_is_named_with_file_and_line() -> None:
    expected = f"raise_secret (test_places.py:{line_of(raise_secret)})"
    assert where_of(raised_by(raise_secret)) == expected


def test_of_an_error_in_the_standard_library_the_call_to_it_is_named() -> None:
    expected = f"call_standard_library (test_places.py:{line_of(call_standard_library)})"
    assert where_of(raised_by(call_standard_library)) == expected


def test_of_an_error_in_a_library_the_call_to_it_is_named() -> None:
    expected = f"call_library (test_places.py:{line_of(call_library, 4)})"
    assert where_of(raised_by(call_library)) == expected


def test_code_without_a_file_is_not_preferred() -> None:
    where = where_of(raised_by(lambda: call_library("<string>")))
    assert where is not None
    assert where.startswith("call_library ")


def test_where_all_is_of_libraries_the_innermost_is_named() -> None:
    """As of a handler that was installed with pip."""
    assert where_of(without_outer(raised_by(call_library), 2)) == "send (client.py:2)"


def test_an_error_of_ackbox_itself_has_no_place() -> None:
    """It is none of the user's, as when the handler ran out of time."""
    assert where_of(without_outer(raised_by(lambda: from_text("nonsense")), 2)) is None


def test_what_was_never_raised_has_no_place() -> None:
    assert where_of(ValueError("secret")) is None


def test_an_endless_recursion_has_a_place() -> None:
    def again() -> None:
        again()

    where = where_of(raised_by(again))
    assert where is not None
    assert "again (test_places.py:" in where
