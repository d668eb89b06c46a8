"""A Redis stream, read by one consumer group, that may be lost, trimmed or unavailable at any time.

No call raises an error, and a command to the server is given up after a second. An outage is
reported once. During an outage, the server is contacted only from time to time, at growing
intervals. Calls in between return nothing at once, except a `read` that blocks: it waits for the
next attempt. If the server refuses only writes or only reads, calls of the other kind go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from ackbox.errors import SettingError
from ackbox.model import EventId
from ackbox.telemetry import Observer, QueueFailed, QueueRecovered

T = TypeVar("T")
Entries = list[tuple[EventId, str]]
"""Events and their sources."""

KEY = "ackbox"
MAX_ENTRIES = 10_000  # a longer backlog is read from the database

# No entry is ever pending, so consumers need not be told apart: all instances read as one consumer.
_GROUP = _CONSUMER = "ackbox"
# One command adds all entries: this costs the client a sixth of a pipeline of XADD.
_ADD = f"""for i = 1, #ARGV, 2 do
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', {MAX_ENTRIES}, '*', ARGV[i], ARGV[i + 1])
end
return #ARGV"""
_SECONDS = 1.0
_FIRST_DELAY = 0.1
_MAX_DELAY = 5.0


class _Scope(Enum):
    """The calls that an outage affects. An error response affects only calls of the same kind: a
    server that is out of memory can still be read."""

    SERVER = auto()
    ADDING = auto()
    READING = auto()


class _Outage:
    def __init__(self) -> None:
        self.retry_at = 0.0
        self._delay = _FIRST_DELAY

    def postpone_retry(self, now: float) -> None:
        self.retry_at = now + self._delay
        self._delay = min(self._delay * 2, _MAX_DELAY)


class Stream:
    """Implements `Relay`: a client that connects on first use. All calls come from one event
    loop."""

    def __init__(
        self, url: str, observe: Observer, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._client = make_client(url)
        self._observe = observe
        self._clock = clock
        self._outages: dict[_Scope, _Outage] = {}

    async def add(self, events: Mapping[EventId, str]) -> bool:
        """Add the events, and return whether they are in the stream now."""
        pairs = [text for pair in events.items() for text in pair]
        add = partial(self._client.eval, _ADD, 1, KEY, *pairs)
        return await self._attempt(_Scope.ADDING, add, None) is not None

    async def read(self, count: int, *, block: float = 0.0) -> Entries:
        """Return at most `count` entries that no other instance has read, after at most `block`
        seconds.

        A call that does not block returns nothing during an outage: it is in a hurry, and calls
        that block notice when the outage is over. They first wait until a read is worth trying.
        """
        if self._outages_of(_Scope.READING):
            if not block:
                return []
            await asyncio.sleep(max(self._delay_before(_Scope.READING), 0.0))
        return await self._attempt(_Scope.READING, lambda: self._read(count, block), [])

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, count: int, block: float) -> Entries:
        try:
            return await self._read_group(count, block)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
        # The group never existed, or the server has lost it with the stream (F11).
        try:
            await self._client.xgroup_create(KEY, _GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # another instance has created it
                raise
        return await self._read_group(count, 0.0)

    async def _read_group(self, count: int, block: float) -> Entries:
        # Entries are not acknowledged. If the reader dies, the event is still due in the database,
        # and is found there sooner than a pending entry could be called abandoned (F44).
        response = await self._client.xreadgroup(
            _GROUP,
            _CONSUMER,
            {KEY: ">"},
            count=count,
            block=round(block * 1000) or None,
            noack=True,
        )
        return _entries(response)

    async def _attempt(self, kind: _Scope, call: Callable[[], Awaitable[T]], fallback: T) -> T:
        if self._delay_before(kind) > 0:
            return fallback
        try:
            async with asyncio.timeout(_SECONDS):
                result = await call()
        except Exception as error:  # noqa: BLE001 - the stream is a hint: no error may stop a claim
            self._note_failure(kind if isinstance(error, ResponseError) else _Scope.SERVER, error)
            return fallback
        self._note_success(kind)
        return result

    def _outages_of(self, kind: _Scope) -> list[_Outage]:
        return [self._outages[scope] for scope in (_Scope.SERVER, kind) if scope in self._outages]

    def _delay_before(self, kind: _Scope) -> float:
        retries = [outage.retry_at for outage in self._outages_of(kind)]
        return max(retries) - self._clock() if retries else 0.0

    def _note_failure(self, scope: _Scope, error: BaseException) -> None:
        if not self._outages:
            message = " ".join(str(error).split()) or type(error).__name__
            self._observe(QueueFailed(f"Redis cannot be used: {message}"))
        self._outages.setdefault(scope, _Outage()).postpone_retry(self._clock())

    def _note_success(self, kind: _Scope) -> None:
        """End the outages of the server and of this kind of call. A success says nothing about
        calls of the other kind."""
        ended = [self._outages.pop(scope, None) for scope in (_Scope.SERVER, kind)]
        if any(ended) and not self._outages:
            self._observe(QueueRecovered())


def make_client(url: str) -> Any:
    """Return a client that has not connected yet. Raise `SettingError` for an unusable URL."""
    number = urlsplit(url).path.removeprefix("/")
    if number and not number.isdecimal():
        raise _refused(f"{number} is no number of a database, as in redis://host:6379/0")
    try:
        client: Any = Redis.from_url(
            url,
            decode_responses=True,
            encoding_errors="replace",  # other clients may have written anything
            socket_connect_timeout=None,
            socket_timeout=None,  # the time-out covers a whole call, whatever its steps
            retry=Retry(NoBackoff(), 0),
        )
        client.connection_pool.make_connection()  # does not connect, but checks all options
    except TypeError as error:
        option = str(error).rpartition(" ")[2]
        raise _refused(f"the Redis client knows no option {option}") from None
    except (ValueError, RedisError) as error:
        raise _refused(str(error)) from None
    return client


def _refused(reason: str) -> SettingError:
    return SettingError(f"QUEUE_URL cannot be used: {reason.rstrip('.')}.")


def _entries(response: Sequence[Any]) -> Entries:
    return [
        (EventId(event_id), source)
        for _, entries in response
        for _, fields in entries
        for event_id, source in (fields or {}).items()  # None: deleted in the meantime (F44)
    ]
