"""What `ackbox doctor` finds out about a PostgreSQL ledger and its server. It changes nothing."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from time import monotonic
from typing import TypeVar

import asyncpg

from ackbox.errors import AckboxError, StoreError, Unavailable
from ackbox.model import Clock, Finding, Verdict
from ackbox.stores.backlog import MOST_PARKED, Backlog, check_backlog
from ackbox.stores.postgres import doctor_checks, migrator, rights
from ackbox.stores.postgres.database import Address, Database, connect
from ackbox.stores.postgres.doctor_checks import Condition, LongTransaction, Vacuumed
from ackbox.stores.postgres.failures import FOREIGN, is_pooled_unawares, translate
from ackbox.stores.postgres.transfer_in import assert_no_unfinished_promotion

T = TypeVar("T")
Tick = Callable[[float], None]

_HEAR_SECONDS = 2.0
_TICK_SECONDS = 0.2
_DEEP_SECONDS = 300.0
_POLLED = "instances look for work once a second"


def examine(address: Address, clock: Clock, *, notify: bool) -> Iterator[Finding]:
    """Raises `SettingError` for an address that cannot be used."""

    async def collect(database: Database) -> list[Finding]:
        found: list[Finding] = []
        async with aclosing(_examine(database, clock, notify)) as findings:
            try:
                async for finding in findings:
                    found.append(finding)  # noqa: PERF401 - those before a failure are kept
            except Unavailable as error:
                found.append(_unavailable(error))
        return found

    yield from _ask(address, collect)


def examine_deep(address: Address, tick: Tick) -> Iterator[Finding]:
    """Counts all events; calls `tick` with the seconds since the start, again and again."""
    finding = _ask(address, lambda database: _recount(database, tick), seconds=_DEEP_SECONDS)
    if finding is not None:
        yield finding


def _ask(address: Address, work: Callable[[Database], Awaitable[T]], *, seconds: float = 15.0) -> T:
    async def run() -> T:
        database = Database(address, size=1, seconds=seconds)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(run())


async def _examine(database: Database, clock: Clock, notify: bool) -> AsyncGenerator[Finding, None]:
    before = clock()
    (row,) = await database.fetch("condition")
    found = Condition(**dict(row))
    yield doctor_checks.check_version(found.version)
    yield doctor_checks.check_encoding(found.encoding)
    for finding in doctor_checks.check_durability(found, database.address.durability):
        yield finding
    yield doctor_checks.check_writing(found)
    yield doctor_checks.check_clock(found.clock, before)
    yield doctor_checks.check_connections(found.connections, found.connections_allowed)
    rows = await database.fetch("long_transactions", longer_than=doctor_checks.LONG_TRANSACTION)
    for finding in doctor_checks.check_transactions([LongTransaction(**dict(row)) for row in rows]):
        yield finding
    yield await _listening(database.address, notify)
    async for finding in _ledger(database, found):
        yield finding


def _unavailable(error: Unavailable) -> Finding:
    detail, remedy = str(error), "Start it, or correct DATABASE_URL; servers wait for it."
    if is_pooled_unawares(error.__cause__):
        detail, _, remedy = detail.rpartition(". ")
    return Finding("postgresql", Verdict.FAIL, detail, remedy)


async def _ledger(database: Database, found: Condition) -> AsyncGenerator[Finding, None]:
    try:
        missing = await migrator.pending(database)
        if not missing:
            await assert_no_unfinished_promotion(database)
    except StoreError as error:
        detail, _, remedy = str(error).partition(". ")
        yield Finding("ledger", Verdict.FAIL, detail, remedy or "The server's log may say more.")
        return
    known = migrator.all_migrations()
    if len(missing) == len(known):
        yield await _no_ledger(database)
        return
    if missing:
        detail = f"The ledger lacks {len(missing)} of {len(known)} migrations."
        remedy = "The next start applies them, as does `ackbox migrate`; make a backup before."
        yield Finding("ledger", Verdict.WARN, detail, remedy)
        return
    yield Finding("ledger", Verdict.OK, f"schema {known[-1].version:04}")
    if (lacking := await rights.find_missing(database)) is not None:
        yield Finding("rights", Verdict.FAIL, *lacking)
        return
    yield Finding("rights", Verdict.OK, "the user of DATABASE_URL has those it needs")
    (row,) = await database.fetch("vacuumed")
    yield doctor_checks.check_vacuum(found.autovacuum, Vacuumed(**dict(row)))
    for finding in check_backlog(await _backlog(database), found.clock):
        yield finding


async def _no_ledger(database: Database) -> Finding:
    if (hindrance := await rights.find_hindrance(database)) is not None:
        return Finding("ledger", Verdict.FAIL, *hindrance)
    detail = "There is no ledger in the first schema of the search_path: the first start makes it"
    return Finding("ledger", Verdict.OK, detail)


async def _backlog(database: Database) -> Backlog:
    status_counts = {row[0]: row[1] for row in await database.fetch("status_counts")}
    oldest = await database.fetch("oldest_pending")
    ((parked,),) = await database.fetch("count_parked", limit=MOST_PARKED)
    since = oldest[0][0] if oldest else None
    return Backlog(status_counts.get("pending", 0), status_counts.get("failed", 0), parked, since)


async def _listening(address: Address, notify: bool) -> Finding:
    """Tried, not guessed: what stands between us and the server does not tell what it is."""
    if address.pooled or not notify:
        why = "DATABASE_POOLING=transaction" if address.pooled else "NOTIFY=off"
        return Finding("notify", Verdict.OK, f"not used ({why}): {_POLLED}")
    try:
        heard = await _hears(address)
    except AckboxError as error:
        heard, detail = False, f"LISTEN failed: {error}"
    else:
        detail = "A NOTIFY was not heard: a pooling proxy seems to stand in between."
    if heard:
        return Finding("notify", Verdict.OK, "instances wake each other")
    remedy = f"Set DATABASE_POOLING=transaction, or NOTIFY=off: {_POLLED} then."
    return Finding("notify", Verdict.WARN, detail, remedy)


async def _hears(address: Address) -> bool:
    channel = f"ackbox_doctor_{secrets.token_hex(4)}"
    heard = asyncio.Event()
    listener = await connect(address)
    try:
        await listener.add_listener(channel, lambda *_: heard.set())
        sender = await connect(address)
        try:
            await sender.execute(f"NOTIFY {channel}")
        finally:
            sender.terminate()
        await asyncio.wait_for(heard.wait(), _HEAR_SECONDS)
    except TimeoutError:
        return False
    except FOREIGN as error:
        raise translate(error) from error
    finally:
        listener.terminate()
    return True


async def _recount(database: Database, tick: Tick) -> Finding | None:
    """In one statement, so of one moment; stopped before it keeps vacuum away for long (F37)."""
    try:
        if await migrator.pending(database):
            return None
        return _status_counts(await _ticking(database.fetch("recount"), tick))
    except AckboxError as error:
        if not isinstance(error.__cause__, TimeoutError | asyncpg.QueryCanceledError):
            raise
    detail = f"The count was stopped after {_DEEP_SECONDS:.0f} s."
    return Finding("status_counts", Verdict.WARN, detail, "Count on a replica, or a restored dump.")


def _status_counts(rows: list[asyncpg.Record]) -> Finding:
    wrong = [f"{status} {kept}, counted {real}" for status, kept, real in rows if kept != real]
    if not wrong:
        total = sum(kept for status, kept, _ in rows if status != "live_events")
        return Finding("status_counts", Verdict.OK, f"{total} events, counted one by one")
    remedy = "No event is lost, but metrics go by these: please report it."
    return Finding(
        "status_counts", Verdict.FAIL, f"Kept counts are wrong: {'; '.join(wrong)}.", remedy
    )


async def _ticking(work: Awaitable[T], tick: Tick) -> T:
    started = monotonic()
    task = asyncio.ensure_future(work)
    while not task.done():
        tick(monotonic() - started)
        await asyncio.wait([task], timeout=_TICK_SECONDS)
    return await task
