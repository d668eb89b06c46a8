"""Test your handlers on a real inbox, one step at a time, with a clock that the test moves.

clock      a clock that moves only when a test moves it
delivery   an event as a sender sends it
harness    an inbox on a temporary file: post, run, crash, read
steps      claim, run and settle, one event after the other
"""

from ackbox.testing.clock import MovableClock
from ackbox.testing.delivery import Delivery
from ackbox.testing.harness import InboxHarness

__all__ = ["Delivery", "InboxHarness", "MovableClock"]
