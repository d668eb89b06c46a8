"""The quarantine: keep requests that failed verification, and release or drop them later."""

from ackbox.quarantine.keeper import Keeper
from ackbox.quarantine.refusal_rates import RefusalRates

__all__ = ["Keeper", "RefusalRates"]
