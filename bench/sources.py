"""The inbox of the benchmark of sources: one sender that signs its deliveries, and no handler."""

from ackbox import Inbox

inbox = Inbox()
inbox.source("stripe", preset="stripe", secret="env:STRIPE_SECRET")
