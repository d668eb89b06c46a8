"""The checks of `ackbox doctor` on a PostgreSQL server: each turns what was read into a finding."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ackbox.model import Finding, Verdict

_FIRST, _LAST = 14, 18
_SKEW = timedelta(seconds=30)
_CONNECTIONS_OF_AN_INSTANCE = 11
_DEAD_ROWS_ALARM = 1_000_000


class Condition(Struct, frozen=True):
    """The state and settings of the server: the columns of the block `condition`."""

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


def check_durability(condition: Condition, durability: str) -> Iterator[Finding]:
    """Check what protects acknowledged events. `synchronous_commit` is read in one of our own
    sessions, which sets it."""
    if durability != "full":
        detail = "normal: a crash of the server may lose the last acknowledged events"
        yield Finding("durability", Verdict.OK, detail)
        return
    if (condition.fsync, condition.full_page_writes) != ("on", "on"):
        detail = f"fsync is {condition.fsync}, full_page_writes {condition.full_page_writes}."
        remedy = "Switch both on: a power cut loses acknowledged events, or the whole database."
        yield Finding("durability", Verdict.FAIL, detail, remedy)
    elif condition.synchronous_commit not in {"on", "remote_apply"}:
        detail = f"synchronous_commit is {condition.synchronous_commit} in our own sessions."
        remedy = "Let the proxy in between forward it, or set it to on for this database."
        yield Finding("durability", Verdict.FAIL, detail, remedy)
    elif condition.replicas and not condition.synchronous_standbys:
        detail = f"{condition.replicas} replicas follow asynchronously."
        remedy = (
            "A failover to one of them loses the last acknowledged events: set "
            "synchronous_standby_names, or accept it."
        )
        yield Finding("durability", Verdict.WARN, detail, remedy)
    else:
        yield Finding("durability", Verdict.OK, "full: acknowledged means synced")


def check_writing(condition: Condition) -> Finding:
    """Check that transactions may write: a start waits until they may."""
    if condition.standby:
        detail, remedy = "The server is a standby: it takes no writes.", "Name the primary."
        return Finding("writing", Verdict.FAIL, detail, remedy)
    if condition.read_only:
        detail = "default_transaction_read_only is on: the database takes no writes."
        remedy = (
            f"ALTER DATABASE {condition.database} RESET default_transaction_read_only, or "
            "wherever it is set: the role, the server, DATABASE_URL."
        )
        return Finding("writing", Verdict.FAIL, detail, remedy)
    return Finding("writing", Verdict.OK, "transactions may write")


def check_clock(server: datetime, ours: datetime) -> Finding:
    ahead = server - ours
    if abs(ahead) <= _SKEW:
        return Finding("clock", Verdict.OK, "agrees with the server's")
    seconds = round(abs(ahead).total_seconds())
    where = "ahead of" if ahead > timedelta() else "behind"
    remedy = "Synchronize both (NTP). Leases and retries use the server's clock alone."
    return Finding(
        "clock", Verdict.WARN, f"The server's clock is {seconds} s {where} ours.", remedy
    )


def check_connections(used: int, allowed: int) -> Finding:
    shown = f"{used} of {allowed} in use; an instance takes up to {_CONNECTIONS_OF_AN_INSTANCE}"
    if used + _CONNECTIONS_OF_AN_INSTANCE <= allowed:
        return Finding("connections", Verdict.OK, shown)
    remedy = "Raise max_connections, or put a pooling proxy in between (DATABASE_POOLING)."
    return Finding("connections", Verdict.WARN, f"{shown}.", remedy)


def check_transactions(transactions: Sequence[LongTransaction]) -> Iterator[Finding]:
    """Warn of long transactions: vacuum cannot remove rows that died since they began, and the hot
    table bloats (F37)."""
    for transaction in transactions:
        pid, seconds = transaction.pid, transaction.seconds
        detail = f"Process {pid} has had a transaction open for {seconds:.0f} s"
        detail += f" ({transaction.state}): vacuum cannot remove rows that died since."
        remedy = f"End it: SELECT pg_terminate_backend({pid})"
        yield Finding("transactions", Verdict.WARN, detail, remedy)
    if not transactions:
        detail = "no long transaction is open, as far as this user may see"
        yield Finding("transactions", Verdict.OK, detail)


def check_vacuum(on: bool, table: Vacuumed | None) -> Finding:
    if not on or (table is not None and table.switched_off):
        detail = "Autovacuum is off: each event leaves two dead rows, which are never removed."
        remedy = "Switch autovacuum and track_counts on, for the table events too."
        return Finding("vacuum", Verdict.FAIL, detail, remedy)
    if table is not None and table.dead > max(_DEAD_ROWS_ALARM, table.live):
        detail = f"The table events has {table.dead} dead rows and {table.live} live ones."
        remedy = "Find what blocks vacuum (transactions, replication slots), or VACUUM events."
        return Finding("vacuum", Verdict.WARN, detail, remedy)
    return Finding("vacuum", Verdict.OK, "autovacuum is on")
