"""For your own tests: your handlers on a real inbox, one step at a time, on a clock of yours.

clock      a clock that moves when it is told to
delivery   what a sender sends
harness    an inbox on a temporary file: post, run, crash, look
stepping   claim, run and settle, one event after the other
"""

from ackbox.testing.clock import MovableClock
from ackbox.testing.delivery import Delivery
from ackbox.testing.harness import InboxHarness

__all__ = ["Delivery", "InboxHarness", "MovableClock"]
