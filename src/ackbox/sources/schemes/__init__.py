"""How senders sign their deliveries, and how ackbox verifies the signatures.

scheme    the protocol of every scheme, and the result of a verification

Other packages import from here, not from these modules.
"""

from ackbox.sources.schemes.scheme import Scheme, Verification

__all__ = ["Scheme", "Verification"]
