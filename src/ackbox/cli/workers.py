"""Who could run an event that is due, as far as a command can see (N23)."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ackbox.config import Settings


class Workers(NamedTuple):
    """A sentence about who takes an event that is due, and whether anybody may."""

    said: str
    may_run: bool


_SHARED = Workers(
    "a free worker of any running instance takes it next (a command cannot see which run)", True
)
_NOBODY = Workers("no server runs on this ledger: `ackbox serve` takes it", False)


def find_workers(settings: "Settings") -> Workers:
    """SQLite: the holder of the lock tells. PostgreSQL: nobody knows of all instances."""
    from ackbox.app import is_shared, running_server

    if is_shared(settings):
        return _SHARED
    holder = running_server(settings)
    if holder is None:
        return _NOBODY
    who = f"process {holder.pid}"
    if holder.workers == 0:
        return Workers(f"{who} serves this ledger without workers: nothing takes it", False)
    if holder.workers is None:
        return Workers(f"{who} holds this ledger: if it is a server, a worker takes it next", True)
    return Workers(f"a worker of {who} takes it next", True)
