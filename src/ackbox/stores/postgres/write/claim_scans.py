"""Choose how the next claim on PostgreSQL reads `live_events`. Pure code: times come in.

A completed event leaves a dead index entry. While somebody's long transaction keeps vacuum from
removing dead entries, a full scan, which starts at the oldest entry, reads all of them (F37). A
claim can instead continue after its cursors: for each source, the last row that was claimed. Only a
full scan finds an event that becomes claimable before the cursors, for example when its lease
expires.

| state | when | usual scan | now and then |
| --- | --- | --- | --- |
| `STEADY` | Few events are due, and a full scan is quick. | full | after cursors, to measure it |
| `BACKLOG` | The last claim reached its limit. | after cursors | full |
| `SLOW` | The last full scan was slow. | after cursors | full |

- "Now and then" is about once a second. A slow full scan waits longer: see `FULL_SCAN_SHARE`. A
  full scan that was requested is due at once.
- After each scan, `_move` chooses the next state. Only a full scan can enter or leave `SLOW`.
- If a scan after the cursors claims nothing, a full scan follows at once.
"""

from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from math import inf

from msgspec import Struct

SCAN_SECONDS = 1.0
FULL_SCAN_SHARE = 10  # of the elapsed time, at most a tenth is for slow full scans
_SLOW_FACTOR = 1.5
_SLACK_SECONDS = 0.002


class Scan(Enum):
    FULL = "from the oldest entry of every source"
    AFTER_CURSORS = "from the last row that was claimed of each source"


class State(Enum):
    STEADY = "few events are due, and a full scan is quick"
    BACKLOG = "the last claim reached its limit, so more events are due"
    SLOW = "a full scan takes longer than a scan after the cursors"


class _Choice(Struct, frozen=True):
    usual: Scan
    now_and_then: Scan


_CHOICES = {
    State.STEADY: _Choice(usual=Scan.FULL, now_and_then=Scan.AFTER_CURSORS),
    State.BACKLOG: _Choice(usual=Scan.AFTER_CURSORS, now_and_then=Scan.FULL),
    State.SLOW: _Choice(usual=Scan.AFTER_CURSORS, now_and_then=Scan.FULL),
}


class ClaimScans:
    """The state of the scans, and the cursors: the due time and number of the last row that was
    claimed of each source."""

    def __init__(self, now: float, *, scan_seconds: float = SCAN_SECONDS) -> None:
        self.state = State.STEADY
        self.cursors: dict[str, tuple[datetime, int]] = {}
        self._scan_seconds = scan_seconds
        self._due = dict.fromkeys(Scan, now + scan_seconds)
        self._seconds_after_cursors = inf

    def choose(self, now: float) -> Scan:
        """Return the scan of the next claim."""
        if not self.cursors:
            return Scan.FULL
        choice = _CHOICES[self.state]
        return choice.now_and_then if now >= self._due[choice.now_and_then] else choice.usual

    def note_scan(self, scan: Scan, seconds: float, now: float, *, limit_reached: bool) -> None:
        """Note how many seconds a scan took, and move to the next state."""
        is_slow = seconds > _SLOW_FACTOR * self._seconds_after_cursors + _SLACK_SECONDS
        self.state = _move(self.state, scan, is_slow=is_slow, limit_reached=limit_reached)
        if scan is Scan.FULL:
            self._due[scan] = now + max(seconds * FULL_SCAN_SHARE, self._scan_seconds)
        else:
            self._due[scan] = now + self._scan_seconds
            self._seconds_after_cursors = seconds

    def next_claim_at(self, next_due: float | None) -> float | None:
        """Return when to claim again if nothing wakes the worker; `next_due` is when the next event
        is due. While full scans are slow, the next full scan must not be missed."""
        if self.state is not State.SLOW:
            return next_due
        return min(next_due or inf, self._due[Scan.FULL])

    def request_full_scan(self) -> None:
        """Make a full scan due: an event before the cursors may be claimable."""
        self._due[Scan.FULL] = 0.0

    def note_sources(self, sources: AbstractSet[str]) -> None:
        """Request a full scan if events were recorded for a source that has no cursor."""
        if not sources <= self.cursors.keys():
            self.request_full_scan()


def _move(state: State, scan: Scan, *, is_slow: bool, limit_reached: bool) -> State:
    if is_slow if scan is Scan.FULL else state is State.SLOW:
        return State.SLOW
    return State.BACKLOG if limit_reached else State.STEADY
