"""The workers that could run a due event, as far as a command can see (N23)."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ackbox.config import Settings


class Workers(NamedTuple):
    """A sentence about the workers that could run a due event, and whether such workers may
    exist."""

    sentence: str
    may_run: bool


_SHARED = Workers(
    "a free worker of any running instance claims it next (this command cannot see which instances "
    "are running)",
    True,
)
_NOBODY = Workers("no server runs on this ledger: start `ackbox serve`", False)


def find_workers(settings: "Settings") -> Workers:
    """Describe the workers. On SQLite, the holder of the lock has recorded its workers; on
    PostgreSQL, no process knows all instances."""
    from ackbox.app import Shared, choose_admin

    holder = choose_admin(settings).holder()
    if isinstance(holder, Shared):
        return _SHARED
    if holder is None:
        return _NOBODY
    who = f"process {holder.pid}"
    if holder.workers == 0:
        return Workers(f"{who} serves this ledger without workers: nothing claims it", False)
    if holder.workers is None:
        return Workers(f"{who} holds this ledger: if it is a server, a worker claims it next", True)
    return Workers(f"a worker of {who} claims it next", True)
