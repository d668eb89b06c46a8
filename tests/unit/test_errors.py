"""The error tree: what a caller may conclude from an error, and the response that it becomes."""

import pytest

from ackbox.errors import (
    AckboxError,
    ConnectionLost,
    InvalidEvent,
    NotStored,
    OutcomeUnknown,
    Overloaded,
    ReadOnly,
    SettingError,
    StartupError,
    Stopped,
    StorageFull,
    StoreError,
    Unavailable,
)
from ackbox.http.problems import from_error

NOTHING_STORED = [InvalidEvent, Overloaded, Unavailable, StorageFull, ReadOnly, Stopped]


@pytest.mark.parametrize("kind", NOTHING_STORED)
def test_nothing_stored_is_never_an_unknown_outcome(kind: type[AckboxError]) -> None:
    assert issubclass(kind, NotStored)
    assert not issubclass(kind, OutcomeUnknown)


@pytest.mark.parametrize("kind", [OutcomeUnknown, ConnectionLost])
def test_an_unknown_outcome_never_says_that_nothing_was_stored(kind: type[AckboxError]) -> None:
    assert issubclass(kind, OutcomeUnknown)
    assert not issubclass(kind, NotStored)


def test_a_failed_start_is_not_a_wrong_setting() -> None:
    assert not issubclass(StartupError, SettingError)
    assert not issubclass(SettingError, StartupError)


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InvalidEvent("x"), 400, None),
        (Overloaded("x"), 429, b"1"),
        (StorageFull("x", retry_after=5), 503, b"5"),
        (OutcomeUnknown("x"), 503, b"1"),
        (ConnectionLost("x", retry_after=5), 503, b"5"),
        (StoreError("x"), 503, b"5"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sender_is_told_whether_and_when_to_send_again(
    error: AckboxError, status: int, retry_after: bytes | None
) -> None:
    response = from_error(error)
    assert response.status == status
    assert dict(response.headers).get(b"retry-after") == retry_after
