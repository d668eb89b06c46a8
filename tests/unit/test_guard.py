"""What strangers are told of an error of the store."""

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
    """As the adapter of a driver raises it."""
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
def test_strangers_are_told_neither_a_path_nor_a_host(error: AckboxError) -> None:  # S24
    told = redact_error(error, runtime())
    assert told.status == 503
    assert str(told).startswith("The ledger is unavailable")
    assert dict(told.headers)[b"retry-after"]


def test_strangers_are_told_that_the_inbox_starts() -> None:
    assert str(redact_error(Stopped("The inbox is starting."), runtime())) == (
        "The inbox is starting."
    )


def runtime() -> Runtime:
    return cast("Runtime", SimpleNamespace(settings=Settings(db_path=LEDGER)))
