"""The quarantine: keep requests that failed verification, and release or drop them later."""

from ackbox.quarantine.display import show_request
from ackbox.quarantine.keeper import Keeper
from ackbox.quarantine.refusal_rates import RefusalRates
from ackbox.quarantine.release import Drops, Record, Releases

__all__ = ["Drops", "Keeper", "Record", "RefusalRates", "Releases", "show_request"]
