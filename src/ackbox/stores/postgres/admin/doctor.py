"""`ackbox doctor` on PostgreSQL: examine the ledger and its server, without changing anything."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from datetime import timedelta
from time import monotonic
from typing import TypeVar

import asyncpg

from ackbox.errors import OUTAGES, AckboxError, OutcomeUnknown, StoreError, Unavailable
from ackbox.model import Clock, Finding, Verdict
from ackbox.stores.doctor_checks import (
    MAX_PARKED,
    Backlog,
    as_failure,
    check_backlog,
    check_counts,
    report_missing,
)
from ackbox.stores.postgres.admin import doctor_checks, migrator, rights
from ackbox.stores.postgres.admin.doctor_checks import Condition, LongTransaction, Vacuumed
from ackbox.stores.postgres.admin.transfer_in import assert_no_unfinished_promotion
from ackbox.stores.postgres.database import Address, Database, connect
from ackbox.stores.postgres.failures import DRIVER_ERRORS, is_undeclared_pooling, translate

T = TypeVar("T")
Tick = Callable[[float], None]

_LONG_TRANSACTION = timedelta(minutes=1)
_NOTIFY_SECONDS = 2.0
_TICK_SECONDS = 0.2
_DEEP_SECONDS = 300.0
_POLLED = "instances look for work once a second"


def examine(address: Address, clock: Clock, *, notify: bool) -> Iterator[Finding]:
    """Yield all findings. Raise `SettingError` for an address that cannot be used."""

    async def collect(database: Database) -> list[Finding]:
        findings: list[Finding] = []
        async with aclosing(_examine(database, clock, notify)) as examination:
            try:
                async for finding in examination:
                    findings.append(finding)  # noqa: PERF401 - keep the findings before a failure
            except OUTAGES as error:
                findings.append(_unavailable(error))
        return findings

    yield from _run(address, collect)


def examine_deep(
    address: Address, tick: Tick, *, seconds: float = _DEEP_SECONDS
) -> Iterator[Finding]:
    """Count all events. Meanwhile call `tick` repeatedly with the seconds since the start."""
    finding = _run(address, lambda database: _recount(database, tick, seconds), seconds=seconds)
    if finding is not None:
        yield finding


def _run(address: Address, work: Callable[[Database], Awaitable[T]], *, seconds: float = 15.0) -> T:
    async def open_and_work() -> T:
        database = Database(address, size=1, seconds=seconds)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(open_and_work())


async def _examine(database: Database, clock: Clock, notify: bool) -> AsyncGenerator[Finding, None]:
    before = clock()
    (row,) = await database.fetch("condition")
    condition = Condition(**dict(row))
    yield doctor_checks.check_version(condition.version)
    yield doctor_checks.check_encoding(condition.encoding)
    for finding in doctor_checks.check_durability(condition, database.address.durability):
        yield finding
    yield doctor_checks.check_writing(condition)
    yield doctor_checks.check_clock(condition.clock, before)
    yield doctor_checks.check_connections(condition.connections, condition.connections_allowed)
    for finding in await check_transactions(database):
        yield finding
    yield await check_notify(database.address, notify)
    yield await _check_users_path(database)
    async for finding in _ledger(database, condition):
        yield finding


async def check_transactions(
    database: Database, *, longer_than: timedelta = _LONG_TRANSACTION
) -> list[Finding]:
    rows = await database.fetch("long_transactions", longer_than=longer_than)
    return list(doctor_checks.check_transactions([LongTransaction(**dict(row)) for row in rows]))


async def _check_users_path(database: Database) -> Finding:
    if (problem := await rights.find_empty_path(database)) is not None:
        return Finding("search_path", Verdict.FAIL, *problem)
    return Finding("search_path", Verdict.OK, "your own tables have a schema")


def _unavailable(error: Unavailable | OutcomeUnknown) -> Finding:
    detail, remedy = str(error), "Start it, or correct DATABASE_URL; servers wait for it."
    if is_undeclared_pooling(error.__cause__):
        detail, _, remedy = detail.rpartition(". ")
    return Finding("postgresql", Verdict.FAIL, detail, remedy)


async def _ledger(database: Database, condition: Condition) -> AsyncGenerator[Finding, None]:
    try:
        missing = await migrator.pending(database)
        if not missing:
            await assert_no_unfinished_promotion(database)
    except StoreError as error:
        yield as_failure("ledger", error)
        return
    known = migrator.all_migrations()
    if len(missing) == len(known):
        yield await _no_ledger(database)
        return
    if missing:
        yield report_missing("The ledger", missing, known)
        return
    yield Finding("ledger", Verdict.OK, f"schema {known[-1].version:04}")
    if (lacking := await rights.find_missing(database)) is not None:
        yield Finding("rights", Verdict.FAIL, *lacking)
        return
    yield Finding("rights", Verdict.OK, "the user of DATABASE_URL has all that it needs")
    (row,) = await database.fetch("vacuumed")
    yield doctor_checks.check_vacuum(condition.autovacuum, Vacuumed(**dict(row)))
    for finding in check_backlog(await _backlog(database), condition.clock):
        yield finding


async def _no_ledger(database: Database) -> Finding:
    if (hindrance := await rights.find_hindrance(database)) is not None:
        return Finding("ledger", Verdict.FAIL, *hindrance)
    schema = database.address.schema
    detail = f"There is no ledger in the schema {schema}: the first start creates it"
    return Finding("ledger", Verdict.OK, detail)


async def _backlog(database: Database) -> Backlog:
    status_counts = {row[0]: row[1] for row in await database.fetch("status_counts")}
    blocks = ("oldest_pending", "oldest_submission")
    oldest = [await database.fetch(block) for block in blocks]
    ((parked,),) = await database.fetch("count_parked", limit=MAX_PARKED)
    since, unrecorded = [rows[0][0] if rows else None for rows in oldest]
    pending, failed = [status_counts.get(status, 0) for status in ("pending", "failed")]
    return Backlog(pending, failed, parked, since, unrecorded)


async def check_notify(
    address: Address, notify: bool, *, seconds: float = _NOTIFY_SECONDS
) -> Finding:
    """Send a NOTIFY and wait for it. A pooling proxy does not identify itself: a NOTIFY that does
    not arrive is the only sign of one."""
    if address.pooled or not notify:
        why = "DATABASE_POOLING=transaction" if address.pooled else "NOTIFY=off"
        return Finding("notify", Verdict.OK, f"not used ({why}): {_POLLED}")
    try:
        received = await _receives_notify(address, seconds)
    except AckboxError as error:
        received, detail = False, f"LISTEN failed: {error}"
    else:
        detail = "A NOTIFY was not received: there seems to be a pooling proxy in between."
    if received:
        return Finding("notify", Verdict.OK, "instances wake each other")
    remedy = f"Set ACKBOX_DATABASE_POOLING=transaction, or ACKBOX_NOTIFY=off: then {_POLLED}."
    return Finding("notify", Verdict.WARN, detail, remedy)


async def _receives_notify(address: Address, seconds: float) -> bool:
    channel = f"ackbox_doctor_{secrets.token_hex(4)}"
    received = asyncio.Event()
    listener = await connect(address)
    try:
        await listener.add_listener(channel, lambda *_: received.set())
        sender = await connect(address)
        try:
            await sender.execute(f"NOTIFY {channel}")
        finally:
            sender.terminate()
        await asyncio.wait_for(received.wait(), seconds)
    except TimeoutError:
        return False
    except DRIVER_ERRORS as error:
        raise translate(error) from error
    finally:
        listener.terminate()
    return True


async def _recount(database: Database, tick: Tick, seconds: float) -> Finding | None:
    """Count all events in one statement, which sees one moment. Stop it before it keeps vacuum from
    its work for long (F37)."""
    try:
        if await migrator.pending(database):
            return None
        rows = await _ticking(database.fetch("recount"), tick)
        return check_counts(map(tuple, rows), "metrics")
    except AckboxError as error:
        if not isinstance(error.__cause__, TimeoutError | asyncpg.QueryCanceledError):
            raise
    detail = f"The count was stopped after {seconds:.0f} s."
    return Finding("status_counts", Verdict.WARN, detail, "Count on a replica, or a restored dump.")


async def _ticking(work: Awaitable[T], tick: Tick) -> T:
    started = monotonic()
    task = asyncio.ensure_future(work)
    while not task.done():
        tick(monotonic() - started)
        await asyncio.wait([task], timeout=_TICK_SECONDS)
    return await task
