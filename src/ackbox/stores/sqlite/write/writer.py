"""The one thread that writes.

Operations queue up while a commit syncs. The thread then runs all of them in the next transaction:
group commit without a timer. An operation that runs users' statements has a savepoint of its own.
If any other operation fails, the thread rolls back and runs each operation in a transaction of its
own (ADR 20). Callers get their results only after COMMIT, and only if the files of the ledger are
still those that were opened (ADR 26).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Concatenate, ParamSpec

import apsw

from ackbox.errors import (
    AckboxError,
    LedgerCorrupt,
    OutcomeUnknown,
    Stopped,
    StoreError,
    Unavailable,
)
from ackbox.stores.sqlite.connections import (
    Connect,
    assert_ledger_file,
    assert_undamaged,
    damaged,
    translate,
)
from ackbox.stores.sqlite.ledger_files import Difference, LedgerFiles, open_files
from ackbox.stores.sqlite.limits import LIMITS, Limits
from ackbox.stores.sqlite.read.reader_connections import ReaderConnections
from ackbox.stores.sqlite.statements import Statements
from ackbox.stores.sqlite.write.checkpoints import Checkpoints, copy_log
from ackbox.stores.sqlite.write.jobs import (
    Job,
    Operation,
    T,
    TransactionLost,
    as_unavailable,
    mark,
    resolve,
    run_each,
    translated,
)
from ackbox.telemetry import Committed, Observer, StoreFailed, StoreRecovered

P = ParamSpec("P")

_SECOND_FAILURE_SECONDS = 60.0


class Signal(Enum):
    """A request in the queue of the writer that is not an operation."""

    INSPECT = "compare the files, even if no operation waits"
    STOP = "finish the queued operations, then close the file"


class Writer:
    """Owns the writing connection from its construction to `stop`, and makes every checkpoint.

    `readers` are the other connections of this process. They are closed too before a reopen.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        reconnect: Connect,
        files: LedgerFiles,
        *,
        observe: Observer,
        on_fatal: Callable[[AckboxError], None],
        limits: Limits = LIMITS,
        monotonic: Callable[[], float] = monotonic,
    ) -> None:
        self.unavailable_reason: str | None = None
        self.readers: list[ReaderConnections] = []
        self._connection: apsw.Connection | None = connection
        self._path = connection.filename
        self._reconnect = reconnect
        self._files = files
        self._is_moved = False
        self._is_distrusted = False
        self._observe = observe
        self._on_fatal = on_fatal
        self._limits = limits
        self._monotonic = monotonic
        self._checkpoints = Checkpoints(connection, observe, limits)
        self._jobs: SimpleQueue[Job[Any] | Signal] = SimpleQueue()
        self._current_jobs: list[Job[Any]] = []
        self._last_failure: float | None = None
        self._reopen_at = 0.0
        self._dead: AckboxError | None = None
        self._is_committing = False  # True from COMMIT until its jobs are resolved
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._main, name="ackbox-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        operation: Operation[T],
        *,
        outside_transaction: bool = False,
        in_savepoint: bool = False,
    ) -> asyncio.Future[T]:
        """Run the operation in the next transaction. Cancelling the future does not stop it."""
        if self._dead is not None:
            raise self._dead
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(
            Job(
                operation=operation,
                waiter=waiter,
                outside_transaction=outside_transaction,
                in_savepoint=in_savepoint,
            )
        )
        return waiter

    def run(
        self, function: Callable[Concatenate[Statements, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Submit a function that runs named statements, with its other arguments."""
        return self.submit(lambda connection: function(Statements(connection), *args, **kwargs))

    def inspect(self) -> None:
        """Compare the files soon. May be called from any thread."""
        self._jobs.put(Signal.INSPECT)

    def refuse_new(self) -> None:
        """Refuse new operations. Those that are queued go on."""
        if self._dead is None:
            self._dead = Stopped("The ledger is closed.")

    async def stop(self) -> None:
        """Finish the queued operations, then close the file."""
        self.refuse_new()
        self._jobs.put(Signal.STOP)
        await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        keep_log = False
        try:
            while (jobs := self._take()) is not None:
                self._run_jobs(jobs)
                jobs = self._current_jobs = []  # keep no finished batch in memory while waiting
        except BaseException as error:  # noqa: BLE001 - what ends the thread must reach every waiter
            keep_log = True
            self._die(error if isinstance(error, AckboxError) else as_unavailable(error))
        finally:
            self._disconnect(keep_log=keep_log)
            self._files.shared_locks.close()

    def _take(self) -> list[Job[Any]] | None:
        """Return all jobs that wait now, or None to stop. Block until there is one; while the store
        is unavailable, return after a second without jobs, so that the caller can reopen it."""
        try:
            is_closed = self._connection is None
            item = self._jobs.get(timeout=self._limits.retry_seconds if is_closed else None)
        except Empty:
            return []
        jobs = []
        while item is not Signal.STOP:
            if item is not Signal.INSPECT:
                jobs.append(item)
            if self._jobs.empty():
                return jobs
            item = self._jobs.get()
        if jobs:
            self._jobs.put(Signal.STOP)
            return jobs
        return None

    def _run_jobs(self, jobs: list[Job[Any]]) -> None:
        self._current_jobs = jobs
        if self._connection is None and self._monotonic() >= self._reopen_at:
            with self._readers_closed():
                self._try_reopen()
        if self._connection is not None and (self._is_moved or not jobs):
            self._inspect(self._connection)
        if self._connection is None:
            self._fail(jobs, self._unavailable())
            return
        together = [job for job in jobs if not job.outside_transaction]
        if together:
            self._run_together(self._connection, together)
        for job in jobs:
            if job.outside_transaction:
                self._run_alone(job)
        if self._connection is not None:
            self._checkpoint(self._connection)

    def _run_together(self, connection: apsw.Connection, jobs: list[Job[Any]]) -> None:
        """Run all jobs in one transaction. If it is lost, run each job in a transaction of its own,
        so that only the failing job fails."""
        if self._is_moved:  # a backup still works: its jobs run alone
            self._fail(jobs, self._unavailable())
            return
        started = monotonic()
        self._files.note_begin()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._fail(jobs, translate(error, self._path))
            return
        try:
            run_each(connection, jobs)
            self._commit(connection, jobs)
        except TransactionLost as lost:
            self._retry_each(connection, jobs, lost)
            return
        if self._connection is None:
            return
        if (difference := self._files.compare()) is not None:
            self._fail_uncertain(connection, jobs, difference)
            return
        self._resolve(jobs)
        self._observe(Committed(len(jobs), monotonic() - started))

    def _commit(self, connection: apsw.Connection, jobs: list[Job[Any]]) -> None:
        self._is_committing = True
        try:
            connection.execute("COMMIT")
        except apsw.IOError as error:
            unknown = OutcomeUnknown(f"The commit failed and its outcome is unknown: {error}.")
            self.unavailable_reason = str(unknown)  # set before any waiter learns of it
            self._fail(jobs, unknown)
            self._break(unknown)
        except apsw.Error as error:
            raise TransactionLost(translate(error, self._path)) from error

    def _retry_each(
        self, connection: apsw.Connection, jobs: list[Job[Any]], lost: TransactionLost
    ) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if len(jobs) == 1:
            self._fail(jobs, lost.error)
            return
        for job in jobs:
            if self._connection is None:
                self._fail([job], self._unavailable())
            else:
                job.result = job.error = None
                self._run_together(self._connection, [job])

    def _run_alone(self, job: Job[Any]) -> None:
        if self._connection is None:
            self._fail([job], self._unavailable())
            return
        try:
            job.result = job.operation(self._connection)
        except Exception as error:  # noqa: BLE001 - any error goes back to the caller
            job.error = translated(error, self._path)
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._resolve([job])

    def _checkpoint(self, connection: apsw.Connection) -> None:
        try:
            if self._checkpoints.run_if_due(connection):
                self._files.note_checkpoint()
        except apsw.IOError as error:
            self._break(Unavailable(f"The checkpoint failed: {error}."))
        except apsw.Error as error:
            raise translate(error, self._path) from error

    def _break(self, reason: Unavailable | OutcomeUnknown) -> None:
        """Close the file after an I/O error left it in an unknown state: `_try_reopen` must succeed
        before any further write. A second I/O error within a minute ends the process (F8)."""
        now = self._monotonic()
        if self._last_failure is not None and now - self._last_failure < _SECOND_FAILURE_SECONDS:
            raise reason
        self._last_failure = now
        self.unavailable_reason = str(reason)
        self._observe(StoreFailed(self.unavailable_reason))
        self._disconnect()

    def _inspect(self, connection: apsw.Connection) -> None:
        self._files.note_begin()
        difference = self._files.compare()
        if difference is not None:
            self._react(connection, difference)
        elif self._is_moved:
            self._is_moved = False
            self.unavailable_reason = None
            self._observe(StoreRecovered())

    def _fail_uncertain(
        self, connection: apsw.Connection, jobs: Sequence[Job[Any]], difference: Difference
    ) -> None:
        """Fail the jobs: COMMIT returned, but it may have written to a file that was moved or
        deleted."""
        self.unavailable_reason = difference.value  # set before any waiter learns of it
        self._fail(jobs, OutcomeUnknown(difference.value, retry_after=5))
        self._react(connection, difference)

    def _react(self, connection: apsw.Connection, difference: Difference) -> None:
        if difference is Difference.LEDGER_TRUNCATED:
            raise LedgerCorrupt(damaged(self._path, "another program truncated it"))
        if difference is Difference.LOG_TRUNCATED:
            raise LedgerCorrupt(damaged(self._path, "another program truncated its log"))
        if difference is not Difference.MOVED:
            self._save_log_and_reopen(connection, difference)
        elif not self._is_moved:
            self._is_moved = True
            self.unavailable_reason = difference.value
            self._observe(StoreFailed(difference.value))

    def _save_log_and_reopen(self, connection: apsw.Connection, difference: Difference) -> None:
        """Copy the log into the ledger through the connection that still has it, then open the
        files again. If the reopening fails for good, the process ends and leaves the log as it is
        for recovery."""
        self.unavailable_reason = difference.value
        self._is_moved, self._is_distrusted = False, True
        self._observe(StoreFailed(difference.value))
        try:
            with self._readers_closed():
                copy_log(connection, is_deleted=difference is Difference.LOG_DELETED)
                self._disconnect(keep_log=True)
                self._files.lock.take_again()
                self._try_reopen()
        except apsw.Error as error:
            raise translate(error, self._path) from error

    @contextmanager
    def _readers_closed(self) -> Iterator[None]:
        """Keep all readers closed. The connections of a process share one index of the log: an open
        reader would pass the index of the old log to the new writer. And any code that opens and
        closes the file, such as the check of its header, drops the locks of a reader."""
        with ExitStack() as closed:
            for readers in self.readers:
                closed.enter_context(readers.closed())
            yield

    def _try_reopen(self) -> None:
        """Reopen the file and prove that writing works. After a failed sync the kernel may mark
        pages as clean that never reached the disk. So the log is copied into the file and truncated
        before a new commit may rely on it."""
        self._reopen_at = self._monotonic() + self._limits.retry_seconds
        try:
            self._connection = self._reopen()
        except apsw.IOError as error:
            self._break(Unavailable(f"The test write failed: {error}."))
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise translate(error, self._path) from error
        except (apsw.Error, AckboxError, OSError) as error:
            if isinstance(error, LedgerCorrupt) or (self._is_distrusted and _is_final(error)):
                raise
            self.unavailable_reason = f"The database cannot be reopened: {error}."
            self._disconnect()
        else:
            self._is_distrusted = False
            self.unavailable_reason = None
            self._observe(StoreRecovered())

    def _reopen(self) -> apsw.Connection:
        self._files.assert_in_place()
        if self._is_distrusted:
            assert_ledger_file(self._files.path)
        self._connection = connection = open_files(self._reconnect, self._files)
        if self._is_distrusted:
            assert_undamaged(connection, seconds=self._limits.check_seconds)
        self._checkpoints = Checkpoints(connection, self._observe, self._limits)
        self._checkpoints.prove_writable(connection)
        self._files.note_checkpoint()
        return connection

    def _disconnect(self, *, keep_log: bool = False) -> None:
        """Close the connection. SQLite then deletes the log, unless the shared locks are held: they
        keep every connection, also our own, from deleting it. With `keep_log`, the locks stay held:
        after a fatal error, and before the files are opened again because another program changed
        them. Otherwise the locks are released first."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if not keep_log:
                self._files.shared_locks.release()
            with suppress(apsw.Error):  # the checkpoint at close may fail on a broken file
                connection.close(True)

    def _unavailable(self) -> Unavailable:
        return Unavailable(self.unavailable_reason or "The database is unavailable.")

    def _fail(self, jobs: Sequence[Job[Any]], error: AckboxError) -> None:
        mark(jobs, error)
        self._resolve(jobs)

    def _resolve(self, jobs: Sequence[Job[Any]]) -> None:
        corrupt = None
        for job in jobs:
            job.is_resolved = True
            corrupt = job.error if isinstance(job.error, LedgerCorrupt) else corrupt
        self._is_committing = False
        self._notify_waiters(jobs)
        if corrupt is not None:
            raise corrupt

    def _notify_waiters(self, jobs: Sequence[Job[Any]]) -> None:
        """Resolve the futures, each on its own loop: the main loop of the process for nearly all,
        and another for the heartbeat."""
        others = [job for job in jobs if job.waiter.get_loop() is not self._loop]
        if not others:
            self._loop.call_soon_threadsafe(resolve, jobs)
            return
        for job in jobs:
            with suppress(RuntimeError):  # that loop is closed: no caller waits there
                job.waiter.get_loop().call_soon_threadsafe(resolve, [job])

    def _die(self, error: AckboxError) -> None:
        """Fail every waiter: none may wait for a thread that has ended (F29). The event loop fails
        them, not this thread: `submit` runs on that loop, so at that moment no `submit` is between
        its check of `_dead` and its `put`. The heartbeat submits renewals from a loop of its own.
        Such a renewal may be missed, but it has a time-out."""
        self._dead = Stopped(f"The writer stopped: {error}")
        self.unavailable_reason = str(self._dead)
        self._loop.call_soon_threadsafe(self._fail_waiting, self._dead, error)

    def _fail_waiting(self, reason: AckboxError, error: AckboxError) -> None:
        current = [job for job in self._current_jobs if not job.is_resolved]
        mark(current, OutcomeUnknown(str(reason)) if self._is_committing else reason)
        waiting = []
        while not self._jobs.empty():
            if not isinstance(job := self._jobs.get(), Signal):
                waiting.append(job)
        mark(waiting, reason)
        self._notify_waiters([*current, *waiting])
        self._on_fatal(error)


def _is_final(error: Exception) -> bool:
    """Return whether the ledger itself is at fault, so that a retry cannot succeed."""
    return isinstance(error, StoreError)
