"""Jobs of the writer, and how a batch of them runs in one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import apsw
from msgspec import Struct

from ackbox.errors import AckboxError, StoreError, Unavailable
from ackbox.stores.sqlite.connections import translate

T = TypeVar("T")
Operation = Callable[[apsw.Connection], T]


class Job(Struct, Generic[T], eq=False, kw_only=True):
    """An operation and the future that waits for its result.

    A job runs with others in one transaction, unless it is `outside_transaction`. An `in_savepoint`
    job has a savepoint if its transaction has other jobs.
    """

    operation: Operation[T]
    waiter: asyncio.Future[T]
    outside_transaction: bool
    in_savepoint: bool
    is_resolved: bool = False
    result: T | None = None
    error: BaseException | None = None


class TransactionLost(Exception):
    """The whole transaction was rolled back, or has to be."""

    def __init__(self, error: AckboxError) -> None:
        super().__init__(str(error))
        self.error = error


def run_each(connection: apsw.Connection, jobs: Sequence[Job[Any]]) -> None:
    """Run the operation of each job. Raise `TransactionLost` if the transaction must be repeated.

    Our own operations do not normally fail, so they run without the cost of a savepoint. If one
    fails, the writer runs each job again in a transaction of its own. Users' statements fail more
    often, so they run in a savepoint if the transaction has other jobs.
    """
    try:
        for job in jobs:
            if job.in_savepoint and len(jobs) > 1:
                _run_guarded(connection, job)
            else:
                job.result = job.operation(connection)
    except TransactionLost:
        raise
    except Exception as error:
        raise TransactionLost(translated(error, connection.filename)) from error


def _run_guarded(connection: apsw.Connection, job: Job[Any]) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.operation(connection)
    except Exception as error:
        job.error = translated(error, connection.filename)
        if not connection.in_transaction:
            raise TransactionLost(job.error) from error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def mark(jobs: Sequence[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.error = error


def resolve(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        if job.waiter.done():
            continue
        if job.error is None:
            job.waiter.set_result(job.result)
        else:
            job.waiter.set_exception(job.error)


def translated(error: Exception, path: str) -> AckboxError:
    if isinstance(error, AckboxError):
        return error
    if isinstance(error, apsw.Error):
        return translate(error, path)
    return StoreError(f"{type(error).__name__}: {error}")  # a bug: a retry would fail too


def as_unavailable(error: BaseException) -> AckboxError:
    return Unavailable(f"{type(error).__name__}: {error}")
