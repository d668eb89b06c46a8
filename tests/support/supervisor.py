"""A supervisor that restarts failed loops at once."""

import asyncio

from ackbox.services import Services
from ackbox.telemetry import Observer, to_nobody
from support.events import noon


def supervisor(observe: Observer = to_nobody) -> Services:
    return Services(observe, clock=noon, sleep=lambda _: asyncio.sleep(0))
