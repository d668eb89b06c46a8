"""Calls of the application's own code: `inbox.read_sync`, `inbox.send` and `inbox.send_sync`.

A call from another thread runs on the event loop of the inbox, and the thread waits for it. The
thread of that loop must not wait: the loop could not run the call meanwhile.
"""

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any

from ackbox.byte_buffer import Reservation
from ackbox.errors import OutcomeUnknown, Stopped, Unavailable
from ackbox.model import Receipt, SentEvent, Submission, seal_sent_event
from ackbox.runtime import Runtime

_SYNC_SECONDS = 60.0
_ON_THE_LOOP = (
    "inbox.{0}_sync would block the event loop, which runs in this thread: use `await "
    "inbox.{0}(...)` here. {0}_sync is for plain handlers and other threads."
)
_ANOTHER_LOOP = (
    "`await inbox.send(...)` runs on the event loop of the inbox only. In any other thread use "
    "`inbox.send_sync(...)`."
)


def read_sync(
    runtime: Runtime, sql: str, params: Mapping[str, object], *, seconds: float = _SYNC_SECONDS
) -> list[dict[str, Any]]:
    """Run a user's query from another thread, and wait for the rows (N11)."""
    loop = _loop_for_threads(runtime, "read")
    reading = asyncio.run_coroutine_threadsafe(runtime.reader.query(sql, params), loop)
    try:
        return reading.result(seconds)
    except CancelledError:
        raise Stopped(runtime.state) from None
    except TimeoutError:
        reading.cancel()
        raise Unavailable(
            f"inbox.read_sync got no result within {seconds:g} s: the event loop is blocked."
        ) from None


async def send(runtime: Runtime, sent: SentEvent) -> Receipt:
    """Record an event; return when it is durable."""
    ingest = runtime.ingest
    if asyncio.get_running_loop() is not runtime.loop:
        raise RuntimeError(_ANOTHER_LOOP)
    envelope = seal_sent_event(sent, runtime.clock(), random.getrandbits)
    with Reservation(ingest.bytes) as reservation:
        reservation.hold(len(envelope.payload))
        (receipt,) = await ingest.submit(Submission((envelope,)))
    return receipt


def send_sync(runtime: Runtime, sent: SentEvent, *, seconds: float = _SYNC_SECONDS) -> Receipt:
    """Record an event from another thread; return when it is durable."""
    loop = _loop_for_threads(runtime, "send")
    sending = asyncio.run_coroutine_threadsafe(send(runtime, sent), loop)
    try:
        return sending.result(seconds)
    except CancelledError:
        raise OutcomeUnknown(runtime.state) from None
    except TimeoutError:
        sending.cancel()
        raise OutcomeUnknown(
            f"inbox.send_sync got no receipt within {seconds:g} s: the event loop is blocked. "
            "Send the event again, with the same key."
        ) from None


def _loop_for_threads(runtime: Runtime, method: str) -> asyncio.AbstractEventLoop:
    """Return the event loop of the inbox, for a call from another thread."""
    loop = runtime.loop
    if loop is None or not loop.is_running():
        raise Stopped(f"{runtime.state} Its event loop does not run.")
    if _find_running_loop() is loop:
        raise RuntimeError(_ON_THE_LOOP.format(method))
    return loop


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any. An id of a thread would not do: a
    new thread may have the id of a thread that ended."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
