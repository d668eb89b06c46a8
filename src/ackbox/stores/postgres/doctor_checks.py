"""The server a ledger lives on, for `ackbox doctor`: each thing that was read becomes a finding."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model import Finding, Verdict

LONG_TRANSACTION = timedelta(minutes=1)
_FIRST, _LAST = 14, 18
_SKEW = timedelta(seconds=30)
_CONNECTIONS_OF_AN_INSTANCE = 11
_DEAD_ROWS_ALARM = 1_000_000


class Condition(Struct, frozen=True):
    """What the server says of itself: the columns of the block `condition`."""

    version: int
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standbys: str
    autovacuum: bool
    connections_allowed: int
    connections: int
    replicas: int
    standby: bool
    read_only: bool
    database: str
    clock: datetime


class LongTransaction(Struct, frozen=True):
    pid: int
    state: str
    seconds: float


class Vacuumed(Struct, frozen=True):
    switched_off: bool
    dead: int
    live: int


def check_version(version: int) -> Finding:
    major = version // 10_000
    shown = f"PostgreSQL {major}.{version % 10_000}"
    if major < _FIRST:
        remedy = f"Upgrade the server: {_FIRST} to {_LAST} are supported."
        return Finding("postgresql", Verdict.FAIL, f"{shown} is too old.", remedy)
    if major > _LAST:
        remedy = f"Try it on a copy first: {_FIRST} to {_LAST} are tested."
        return Finding("postgresql", Verdict.WARN, f"{shown} is newer than this release.", remedy)
    return Finding("postgresql", Verdict.OK, shown)


def check_encoding(encoding: str) -> Finding:
    if encoding == "UTF8":
        return Finding("encoding", Verdict.OK, encoding)
    remedy = "Make another database: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
    return Finding("encoding", Verdict.FAIL, f"It is {encoding}, not UTF8.", remedy)


def check_durability(found: Condition, durability: str) -> Iterator[Finding]:
    """`synchronous_commit` is what one of our own sessions has: it sets that by itself."""
    if durability != "full":
        detail = "normal: a crash of the server may lose the last acknowledged events"
        yield Finding("durability", Verdict.OK, detail)
        return
    if (found.fsync, found.full_page_writes) != ("on", "on"):
        detail = f"fsync is {found.fsync}, full_page_writes {found.full_page_writes}."
        remedy = "Switch both on: a power cut loses acknowledged events, or the whole database."
        yield Finding("durability", Verdict.FAIL, detail, remedy)
    elif found.synchronous_commit not in {"on", "remote_apply"}:
        detail = f"synchronous_commit is {found.synchronous_commit} in our own sessions."
        remedy = "Let the proxy in between pass it on, or set it to on for this database."
        yield Finding("durability", Verdict.FAIL, detail, remedy)
    elif found.replicas and not found.synchronous_standbys:
        detail = f"{found.replicas} replicas follow asynchronously."
        remedy = (
            "A failover to one of them loses the last acknowledged events: set "
            "synchronous_standby_names, or accept it."
        )
        yield Finding("durability", Verdict.WARN, detail, remedy)
    else:
        yield Finding("durability", Verdict.OK, "full: acknowledged means synced")


def check_writing(found: Condition) -> Finding:
    """A start waits until writes are taken, so what is not mended here is seen there as waiting."""
    if found.standby:
        detail, remedy = "The server is a standby: it takes no writes.", "Name the primary."
        return Finding("writing", Verdict.FAIL, detail, remedy)
    if found.read_only:
        detail = "default_transaction_read_only is on: the database takes no writes."
        remedy = (
            f"ALTER DATABASE {found.database} RESET default_transaction_read_only, or wherever it "
            "is set: the role, the server, DATABASE_URL."
        )
        return Finding("writing", Verdict.FAIL, detail, remedy)
    return Finding("writing", Verdict.OK, "transactions may write")


def check_clock(server: datetime, ours: datetime) -> Finding:
    ahead = server - ours
    if abs(ahead) <= _SKEW:
        return Finding("clock", Verdict.OK, "agrees with the server's")
    seconds = round(abs(ahead).total_seconds())
    where = "ahead of" if ahead > timedelta() else "behind"
    remedy = "Keep both right (NTP). Leases and retries go by the server's alone."
    return Finding("clock", Verdict.WARN, f"The server's is {seconds} s {where} ours.", remedy)


def check_connections(used: int, allowed: int) -> Finding:
    shown = f"{used} of {allowed} in use; an instance takes up to {_CONNECTIONS_OF_AN_INSTANCE}"
    if used + _CONNECTIONS_OF_AN_INSTANCE <= allowed:
        return Finding("connections", Verdict.OK, shown)
    remedy = "Raise max_connections, or put a pooling proxy in between (DATABASE_POOLING)."
    return Finding("connections", Verdict.WARN, f"{shown}.", remedy)


def check_transactions(found: Sequence[LongTransaction]) -> Iterator[Finding]:
    """One that stays open keeps vacuum from all that died since, and the hot table bloats (F37)."""
    for one in found:
        detail = f"Process {one.pid} has had a transaction open for {one.seconds:.0f} s"
        detail += f" ({one.state}): nothing that died since can be vacuumed."
        remedy = f"End it: SELECT pg_terminate_backend({one.pid})"
        yield Finding("transactions", Verdict.WARN, detail, remedy)
    if not found:
        yield Finding("transactions", Verdict.OK, "none is open for long, as far as we may see")


def check_vacuum(on: bool, table: Vacuumed | None) -> Finding:
    if not on or (table is not None and table.switched_off):
        detail = "Autovacuum is off: each event leaves two dead rows, and they stay."
        remedy = "Switch autovacuum and track_counts on, for the table events too."
        return Finding("vacuum", Verdict.FAIL, detail, remedy)
    if table is not None and table.dead > max(_DEAD_ROWS_ALARM, table.live):
        detail = f"The table events has {table.dead} dead rows and {table.live} live ones."
        remedy = "See what keeps vacuum away (transactions, replication slots), or VACUUM events."
        return Finding("vacuum", Verdict.WARN, detail, remedy)
    return Finding("vacuum", Verdict.OK, "autovacuum is on")
