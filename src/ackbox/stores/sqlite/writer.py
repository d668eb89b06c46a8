"""The one thread that writes.

Operations queue up while a commit syncs; the thread then takes all of them into the next
transaction: group commit without a timer. One that runs users' statements has a savepoint of its
own; should any other fail, each is redone alone (ADR 20). All are answered only after COMMIT.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Generic, TypeVar

import apsw

from ackbox.errors import (
    AckboxError,
    LedgerCorrupt,
    OutcomeUnknown,
    Stopped,
    StoreError,
    Unavailable,
)
from ackbox.stores.sqlite.checkpoints import Checkpoints
from ackbox.stores.sqlite.connections import Connect, translate
from ackbox.stores.sqlite.shared_locks import SharedLocks, open_locked
from ackbox.telemetry import Committed, Observer, StoreRecovered, StoreTrouble

T = TypeVar("T")
Operation = Callable[[apsw.Connection], T]

_RETRY_SECONDS = 1.0
_SECOND_FAILURE_SECONDS = 60.0


class Job(Generic[T]):
    """An operation and who waits for it. `alone` runs between transactions, outside any."""

    __slots__ = ("alone", "answered", "error", "guarded", "operation", "result", "waiter")

    def __init__(
        self, operation: Operation[T], waiter: asyncio.Future[T], *, alone: bool, guarded: bool
    ) -> None:
        self.operation = operation
        self.waiter = waiter
        self.alone = alone
        self.guarded = guarded
        self.answered = False
        self.result: T | None = None
        self.error: BaseException | None = None


class TransactionLost(Exception):
    """SQLite rolled the whole transaction back under us."""

    def __init__(self, error: AckboxError) -> None:
        super().__init__(str(error))
        self.error = error


class Writer:
    """Owns the writing connection from `start` to `stop`, and every checkpoint."""

    def __init__(
        self,
        connection: apsw.Connection,
        reconnect: Connect,
        locks: SharedLocks,
        *,
        observe: Observer,
        on_fatal: Callable[[AckboxError], None],
    ) -> None:
        self.trouble: str | None = None
        self._connection: apsw.Connection | None = connection
        self._path = connection.filename
        self._reconnect = reconnect
        self._locks = locks
        self._observe = observe
        self._on_fatal = on_fatal
        self._checkpoints = Checkpoints(connection, observe)
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._in_hand: list[Job[Any]] = []
        self._last_failure: float | None = None
        self._mend_at = 0.0
        self._dead: AckboxError | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._main, name="ackbox-writer", daemon=True)
        self._thread.start()

    def submit(
        self, operation: Operation[T], *, alone: bool = False, guarded: bool = False
    ) -> asyncio.Future[T]:
        """Run the operation in the next transaction. Cancelling the future does not stop it."""
        if self._dead is not None:
            raise self._dead
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(Job(operation, waiter, alone=alone, guarded=guarded))
        return waiter

    async def stop(self) -> None:
        """Finish what is queued, then close the file."""
        if self._dead is None:
            self._dead = Stopped("The ledger is closed.")
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        try:
            while (jobs := self._take()) is not None:
                self._serve(jobs)
                jobs = self._in_hand = []  # while it waits for more, a batch is not kept in memory
        except BaseException as error:  # noqa: BLE001 - whatever ends the thread must reach the waiters
            self._die(error if isinstance(error, AckboxError) else _died(error))
        finally:
            self._disconnect()
            self._locks.close()

    def _take(self) -> list[Job[Any]] | None:
        """Everything that waits now; blocks for the first, and wakes up to mend a broken store."""
        try:
            job = self._jobs.get(timeout=_RETRY_SECONDS if self._connection is None else None)
        except Empty:
            return []
        jobs = []
        while job is not None:
            jobs.append(job)
            if self._jobs.empty():
                return jobs
            job = self._jobs.get()
        if jobs:
            self._jobs.put(None)
            return jobs
        return None

    def _serve(self, jobs: list[Job[Any]]) -> None:
        self._in_hand = jobs
        if self._connection is None and monotonic() >= self._mend_at:
            self._mend()
        if self._connection is None:
            self._fail(jobs, self._out_of_reach())
            return
        together = [job for job in jobs if not job.alone]
        if together:
            self._serve_together(self._connection, together)
        for job in jobs:
            if job.alone:
                self._serve_alone(job)
        if self._connection is not None:
            self._checkpoint(self._connection)

    def _serve_together(self, connection: apsw.Connection, jobs: list[Job[Any]]) -> None:
        """One transaction for all; if it is lost, one for each, so that a bad one fails alone."""
        started = monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._fail(jobs, translate(error, self._path))
            return
        try:
            _run_each(connection, jobs)
            self._commit(connection, jobs)
        except TransactionLost as lost:
            self._redo(connection, jobs, lost)
            return
        if self._connection is not None:
            self._answer(jobs)
            self._observe(Committed(len(jobs), monotonic() - started))

    def _commit(self, connection: apsw.Connection, jobs: list[Job[Any]]) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.IOError as error:
            unknown = OutcomeUnknown(f"The commit failed and its outcome is unknown: {error}.")
            self.trouble = str(unknown)  # before anybody is told
            self._fail(jobs, unknown)
            self._break(unknown)
        except apsw.Error as error:
            raise TransactionLost(translate(error, self._path)) from error

    def _redo(
        self, connection: apsw.Connection, jobs: list[Job[Any]], lost: TransactionLost
    ) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(jobs) == 1:
            self._fail(jobs, lost.error)
            return
        for job in jobs:
            if self._connection is None:
                self._fail([job], self._out_of_reach())
            else:
                job.result = job.error = None
                self._serve_together(self._connection, [job])

    def _serve_alone(self, job: Job[Any]) -> None:
        if self._connection is None:
            self._fail([job], self._out_of_reach())
            return
        try:
            job.result = job.operation(self._connection)
        except Exception as error:  # noqa: BLE001 - whatever it is goes back to the caller
            job.error = _ours(error, self._path)
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._answer([job])

    def _checkpoint(self, connection: apsw.Connection) -> None:
        try:
            self._checkpoints.run_if_due(connection)
        except apsw.IOError as error:
            self._break(Unavailable(f"The checkpoint failed: {error}."))
        except apsw.Error as error:
            raise translate(error, self._path) from error

    def _break(self, reason: Unavailable) -> None:
        """An I/O error left the file in a state nobody knows: close it, and mend it before any
        further write. The second one within a minute ends the process (F8)."""
        now = monotonic()
        if self._last_failure is not None and now - self._last_failure < _SECOND_FAILURE_SECONDS:
            raise reason
        self._last_failure = now
        self.trouble = str(reason)
        self._observe(StoreTrouble(self.trouble))
        self._disconnect()

    def _mend(self) -> None:
        """Reopen and prove that writing works. After a failed sync the kernel may hold pages as
        clean that never reached the disk, so what the log holds is copied into the file, and the
        log cut to nothing, before a new commit may rely on it."""
        self._mend_at = monotonic() + _RETRY_SECONDS
        try:
            self._connection = open_locked(self._reconnect, self._locks)
            self._checkpoints = Checkpoints(self._connection, self._observe)
            self._checkpoints.prove_writable(self._connection)
        except apsw.IOError as error:
            self._break(Unavailable(f"The test write failed: {error}."))
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise translate(error, self._path) from error
        except (apsw.Error, AckboxError) as error:
            self.trouble = f"The database cannot be reopened: {error}."
            self._disconnect()
        else:
            self.trouble = None
            self._observe(StoreRecovered())

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._locks.release()
            with suppress(apsw.Error):  # of the checkpoint at close, on a file known to be broken
                connection.close(True)

    def _out_of_reach(self) -> Unavailable:
        return Unavailable(self.trouble or "The database is out of reach.")

    def _fail(self, jobs: Sequence[Job[Any]], error: AckboxError) -> None:
        _mark(jobs, error)
        self._answer(jobs)

    def _answer(self, jobs: Sequence[Job[Any]]) -> None:
        corrupt = None
        for job in jobs:
            job.answered = True
            corrupt = job.error if isinstance(job.error, LedgerCorrupt) else corrupt
        self._tell(jobs)
        if corrupt is not None:
            raise corrupt

    def _tell(self, jobs: Sequence[Job[Any]]) -> None:
        """Nearly all wait on the loop of the process; the heartbeat has one of its own."""
        others = [job for job in jobs if job.waiter.get_loop() is not self._loop]
        if not others:
            self._loop.call_soon_threadsafe(_resolve, jobs)
            return
        for job in jobs:
            with suppress(RuntimeError):  # that loop is closed: nobody waits there
                job.waiter.get_loop().call_soon_threadsafe(_resolve, [job])

    def _die(self, error: AckboxError) -> None:
        """Nobody may wait for a thread that is gone (F29). The loop sees to that: here `submit`
        could still be between its look at `_dead` and its `put`."""
        self._dead = Stopped(f"The writer stopped: {error}")
        self.trouble = str(self._dead)
        self._loop.call_soon_threadsafe(self._bury, self._dead, error)

    def _bury(self, reason: AckboxError, error: AckboxError) -> None:
        waiting = [job for job in self._in_hand if not job.answered]
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                waiting.append(job)
        _mark(waiting, reason)
        self._tell(waiting)
        self._on_fatal(error)


def _run_each(connection: apsw.Connection, jobs: Sequence[Job[Any]]) -> None:
    """Our own operations do not fail, so they pay for no savepoint; should one, the transaction is
    lost and each is redone alone. A users' statement may well fail: it gets one."""
    try:
        for job in jobs:
            if job.guarded and len(jobs) > 1:
                _run_guarded(connection, job)
            else:
                job.result = job.operation(connection)
    except TransactionLost:
        raise
    except Exception as error:
        raise TransactionLost(_ours(error, connection.filename)) from error


def _run_guarded(connection: apsw.Connection, job: Job[Any]) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.operation(connection)
    except Exception as error:
        job.error = _ours(error, connection.filename)
        if not connection.in_transaction:
            raise TransactionLost(job.error) from error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _mark(jobs: Sequence[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.error = error


def _resolve(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        if job.waiter.done():
            continue
        if job.error is None:
            job.waiter.set_result(job.result)
        else:
            job.waiter.set_exception(job.error)


def _ours(error: Exception, path: str) -> AckboxError:
    if isinstance(error, AckboxError):
        return error
    if isinstance(error, apsw.Error):
        return translate(error, path)
    return StoreError(f"{type(error).__name__}: {error}")  # a bug: to try again would not mend it


def _died(error: BaseException) -> AckboxError:
    return Unavailable(f"{type(error).__name__}: {error}")
