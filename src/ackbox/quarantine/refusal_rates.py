"""Count the refusals of each source in the last minute."""

from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

_SLOT_SECONDS = 5.0
_SLOTS = 12


class RefusalRates:
    """Refusals by source, in slots of five seconds: the memory does not grow with the refusals."""

    def __init__(self, *, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic = monotonic
        self._slots: deque[tuple[int, Counter[str]]] = deque(maxlen=_SLOTS)

    def note(self, source: str) -> None:
        slot = self._slot()
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1][source] += 1

    def last_minute(self) -> Counter[str]:
        """Return the refusals of the last minute, to five seconds."""
        oldest = self._slot() - _SLOTS
        return sum((counts for slot, counts in self._slots if slot > oldest), Counter())

    def _slot(self) -> int:
        return int(self._monotonic() // _SLOT_SECONDS)
