"""Errors of the store as unauthenticated callers see them."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import asyncpg
import pytest

from ackbox.config import Settings
from ackbox.errors import AckboxError, LedgerCorrupt, Stopped
from ackbox.http.guard import redact_error
from ackbox.runtime import Runtime
from ackbox.stores.postgres.failures import translate

LEDGER = Path("/srv/inbox/events.db")


def raised(error: BaseException) -> AckboxError:
    """Return the error as the adapter of a driver raises it."""
    try:
        raise translate(error) from error
    except AckboxError as translated:
        return translated


@pytest.mark.parametrize(
    "error",
    [
        raised(OSError(111, "Connect call failed ('10.0.0.5', 5432)")),
        raised(asyncpg.InvalidAuthorizationSpecificationError('no entry for user "ackbox"')),
        LedgerCorrupt("The ledger is damaged."),
        Stopped(f"The writer stopped: The ledger {LEDGER} is damaged."),
    ],
    ids=["address", "user", "ledger", "path"],
)
def test_a_redacted_error_names_neither_a_path_nor_a_host(error: AckboxError) -> None:  # S24
    redacted = redact_error(error, runtime())
    assert redacted.status == 503
    assert str(redacted).startswith("The ledger is unavailable")
    assert dict(redacted.headers)[b"retry-after"]


def test_a_redacted_error_still_says_that_the_inbox_starts() -> None:
    assert str(redact_error(Stopped("The inbox is starting."), runtime())) == (
        "The inbox is starting."
    )


def runtime() -> Runtime:
    return cast("Runtime", SimpleNamespace(settings=Settings(db_path=LEDGER)))
