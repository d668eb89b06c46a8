"""A failure has its location in the user's code, and a traceback without local variables."""

import json
from collections.abc import Callable
from types import CodeType

import pytest

from ackbox.model import TRACEBACK_LIMIT, from_text
from ackbox.worker.tracebacks import format_error, where_of

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
    expected = f"raise_secret (test_tracebacks.py:{line_of(raise_secret)})"
    assert where_of(raised_by(raise_secret)) == expected


def test_of_an_error_in_the_standard_library_the_call_to_it_is_named() -> None:
    expected = f"call_standard_library (test_tracebacks.py:{line_of(call_standard_library)})"
    assert where_of(raised_by(call_standard_library)) == expected


def test_of_an_error_in_a_library_the_call_to_it_is_named() -> None:
    expected = f"call_library (test_tracebacks.py:{line_of(call_library, 4)})"
    assert where_of(raised_by(call_library)) == expected


def test_code_without_a_file_is_not_preferred() -> None:
    where = where_of(raised_by(lambda: call_library("<string>")))
    assert where is not None
    assert where.startswith("call_library ")


def test_if_all_frames_are_of_libraries_the_innermost_is_named() -> None:
    """A handler that was installed with pip has only such frames."""
    assert where_of(without_outer(raised_by(call_library), 2)) == "send (client.py:2)"


def test_an_error_of_ackbox_itself_has_no_location() -> None:
    """The user's code did not raise it, such as the time-out of a handler."""
    assert where_of(without_outer(raised_by(lambda: from_text("nonsense")), 2)) is None


def test_an_error_that_was_never_raised_has_no_location() -> None:
    assert where_of(ValueError("secret")) is None


def test_an_endless_recursion_has_a_location() -> None:
    def again() -> None:
        again()

    where = where_of(raised_by(again))
    assert where is not None
    assert "again (test_tracebacks.py:" in where


def test_a_traceback_looks_like_the_one_of_python() -> None:  # N2
    error = without_outer(raised_by(raise_secret), 1)
    assert format_error(error) == (
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {line_of(raise_secret)}, in raise_secret\n'
        '    raise ValueError("secret")\n'
        "ValueError: secret"
    )


def charge(amount: object) -> None:
    local = f"card of {amount}"
    raise ValueError(f"{len(local)} characters")


def test_a_traceback_shows_no_local_variables() -> None:  # N2, S8
    text = str(format_error(raised_by(lambda: charge("planted-4242"))))
    assert "charge(" in text
    assert "4242 characters" not in text
    assert text.count("planted-4242") == 1  # where the source says it


def fail_from(cause: Callable[[], object]) -> None:
    try:
        cause()
    except ValueError as error:
        raise KeyError("amount") from error


def fail_while_handling(first: Callable[[], object]) -> None:
    try:
        first()
    except ValueError:
        raise KeyError("amount")  # noqa: B904 - that is the point


def fail_instead_of(first: Callable[[], object]) -> None:
    try:
        first()
    except ValueError:
        raise KeyError("amount") from None


@pytest.mark.parametrize(
    ("fail", "words"),
    [(fail_from, "direct cause"), (fail_while_handling, "During handling"), (fail_instead_of, "")],
)
def test_the_cause_of_an_error_comes_first(fail: Callable[..., None], words: str) -> None:  # N2
    text = str(format_error(raised_by(lambda: fail(raise_secret))))
    assert text.endswith("KeyError: 'amount'")
    assert words in text
    assert ("ValueError: secret" in text) == bool(words)


def test_notes_and_groups_are_shown() -> None:  # N2
    def fail() -> None:
        error = raised_by(raise_secret)
        error.add_note("while paying")
        raise BaseExceptionGroup("several", [error, KeyboardInterrupt()])

    text = str(format_error(raised_by(fail)))
    assert "BaseExceptionGroup: several (2 sub-exceptions)" in text
    assert "  | ValueError: secret\n  |     while paying" in text
    assert text.endswith("  | ... and 1 more")


def test_a_circle_of_causes_ends() -> None:  # N2
    error = raised_by(raise_secret)
    other = KeyError("other")
    error.__cause__, other.__cause__ = other, error
    text = str(format_error(error))
    assert text.count("ValueError: secret") == 1


def test_of_many_calls_the_innermost_and_the_users_own_are_kept() -> None:  # N2
    source = "def send(depth):\n    if depth: send(depth - 1)\n    raise ValueError('deep')\n"
    made: dict[str, Callable[[int], None]] = {}
    exec(compile(source, LIBRARY, "exec"), made)  # noqa: S102

    def users_own() -> None:
        made["send"](60)

    text = str(format_error(raised_by(users_own)))
    assert "users_own" in text
    assert text.endswith("ValueError: deep")
    assert "calls left out ..." in text
    assert text.count(LIBRARY) < 20


class Wordy(Exception):
    def __str__(self) -> str:
        return "\x00\ud800\x1b[31m" + "ü\n" * 100_000


def raise_wordy() -> None:
    raise Wordy


def test_a_traceback_is_bounded_and_printable() -> None:  # N2
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        fail_from(raise_secret) if left else raise_wordy()

    error = raised_by(lambda: deep(300))
    linked = error
    for _ in range(6):
        linked.__cause__ = raised_by(lambda: deep(300))
        linked = linked.__cause__
    text = str(format_error(error))
    assert len(text.encode()) <= TRACEBACK_LIMIT
    assert all(line.isprintable() for line in text.split("\n"))
    assert "Wordy: \\x00\\ud800\\x1b[31m" in text


def test_an_endless_recursion_has_a_traceback() -> None:  # N2
    def again() -> None:
        again()

    text = str(format_error(raised_by(again)))
    assert "RecursionError" in text
    assert len(text.encode()) <= TRACEBACK_LIMIT


def test_an_error_of_ackbox_itself_has_no_traceback() -> None:  # N2
    assert format_error(without_outer(raised_by(lambda: from_text("nonsense")), 2)) is None


def test_an_error_that_was_never_raised_has_no_traceback() -> None:  # N2
    assert format_error(ValueError("secret")) is None


class Delegates(Exception):
    """An error that, like those of some clients, looks up attributes in a missing response."""

    def __getattr__(self, name: str) -> object:
        return self.__dict__["response"][name]


def test_an_error_whose_attributes_cannot_be_read_is_shown_without_its_notes() -> None:  # N2
    def fail() -> None:
        raise Delegates("rate limited")

    shown = format_error(raised_by(fail))
    assert shown is not None
    assert shown.splitlines()[-1] == "Delegates: rate limited"
