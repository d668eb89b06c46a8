"""One Redis stream, read by one consumer group, that may be lost, trimmed or away at any time.

Every call ends within a second, and none raises: a stream that is away is told of once, tried again
with growing pauses, and gives nothing until then. So is one that only takes nothing, or only gives
nothing, while the other kind of call goes on.
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
Announced = list[tuple[EventId, str]]
"""Events and their sources."""

KEY = "ackbox"
LONGEST = 10_000  # more than this waits in the database alone, which is where a backlog is read

# Nothing is left pending, so nobody has to be told apart: all instances read as one consumer.
_GROUP = _CONSUMER = "ackbox"
# One entry each, by one command: a sixth of what a pipeline of XADD costs the client.
_ADD = f"""for i = 1, #ARGV, 2 do
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', {LONGEST}, '*', ARGV[i], ARGV[i + 1])
end
return #ARGV"""
_SECONDS = 1.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class _About(Enum):
    """What a trouble is about. One that the server told us concerns calls of that kind alone: a
    server that is full can be read."""

    SERVER = auto()
    ADDING = auto()
    READING = auto()


class _Trouble:
    def __init__(self) -> None:
        self.retry_at = 0.0
        self._pause = _FIRST_PAUSE

    def met(self, now: float) -> None:
        self.retry_at = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class Stream:
    """Connects on first use. All calls come from one event loop."""

    def __init__(
        self, url: str, observe: Observer, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._client = make_client(url)
        self._observe = observe
        self._clock = clock
        self._troubles: dict[_About, _Trouble] = {}

    async def add(self, events: Mapping[EventId, str]) -> bool:
        """Whether they are in the stream now: if not, nobody hears of them here."""
        pairs = [text for pair in events.items() for text in pair]
        add = partial(self._client.eval, _ADD, 1, KEY, *pairs)
        return await self._attempt(_About.ADDING, add, None) is not None

    async def read(self, count: int, *, block: float = 0.0) -> Announced:
        """At most `count` that no other instance was given, after at most `block` seconds.

        Who does not block is in a hurry: while the stream is away, others find out that it is back.
        """
        if self._in_the_way_of(_About.READING) and not block:
            return []
        return await self._attempt(_About.READING, lambda: self._read(count, block), [])

    async def until_worth_trying(self) -> None:
        """To read: at once, unless it is away."""
        await asyncio.sleep(max(self._pause_before(_About.READING), 0.0))

    async def close(self) -> None:
        await self._client.aclose()

    async def _read(self, count: int, block: float) -> Announced:
        try:
            return await self._read_group(count, block)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
        # It never was there, or was lost with all it held (F11).
        try:
            await self._client.xgroup_create(KEY, _GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # another instance was faster
                raise
        return await self._read_group(count, 0.0)

    async def _read_group(self, count: int, block: float) -> Announced:
        # Without acknowledgement: what dies with its reader is in the database, due, and found
        # there sooner than any pending entry could be called abandoned (F44).
        answer = await self._client.xreadgroup(
            _GROUP,
            _CONSUMER,
            {KEY: ">"},
            count=count,
            block=round(block * 1000) or None,
            noack=True,
        )
        return _events(answer)

    async def _attempt(self, kind: _About, call: Callable[[], Awaitable[T]], fallback: T) -> T:
        if self._pause_before(kind) > 0:
            return fallback
        try:
            async with asyncio.timeout(_SECONDS):
                result = await call()
        except Exception as error:  # noqa: BLE001 - a hint: whatever its client raises, the ledger has it all
            self._note_trouble(kind if isinstance(error, ResponseError) else _About.SERVER, error)
            return fallback
        self._note_well(kind)
        return result

    def _in_the_way_of(self, kind: _About) -> list[_Trouble]:
        return [self._troubles[about] for about in (_About.SERVER, kind) if about in self._troubles]

    def _pause_before(self, kind: _About) -> float:
        retries = [unavailable_reason.retry_at for unavailable_reason in self._in_the_way_of(kind)]
        return max(retries) - self._clock() if retries else 0.0

    def _note_trouble(self, about: _About, error: BaseException) -> None:
        if not self._troubles:
            said = " ".join(str(error).split()) or type(error).__name__
            self._observe(QueueFailed(f"Redis cannot be used: {said}"))
        self._troubles.setdefault(about, _Trouble()).met(self._clock())

    def _note_well(self, kind: _About) -> None:
        """That one kind of call works says of the other only that the server is there."""
        ended = [self._troubles.pop(about, None) for about in (_About.SERVER, kind)]
        if any(ended) and not self._troubles:
            self._observe(QueueRecovered())


def make_client(url: str) -> Any:
    """Raises `SettingError` for what no connection could be made of."""
    number = urlsplit(url).path.removeprefix("/")
    if number and not number.isdecimal():
        raise _refused(f"{number} is no number of a database, as in redis://host:6379/0")
    try:
        client: Any = Redis.from_url(
            url,
            decode_responses=True,
            encoding_errors="replace",  # whoever else wrote there
            socket_connect_timeout=None,
            socket_timeout=None,  # a whole call has its end, however many steps it takes
            retry=Retry(NoBackoff(), 0),
        )
        client.connection_pool.make_connection()  # it connects nowhere, but takes all options
    except TypeError as error:
        option = str(error).rpartition(" ")[2]
        raise _refused(f"the Redis client knows no option {option}") from None
    except (ValueError, RedisError) as error:
        raise _refused(str(error)) from None
    return client


def _refused(reason: str) -> SettingError:
    return SettingError(f"QUEUE_URL cannot be used: {reason.rstrip('.')}.")


def _events(answer: Sequence[Any]) -> Announced:
    return [
        (EventId(event_id), source)
        for _, entries in answer
        for _, fields in entries
        for event_id, source in (fields or {}).items()  # None: deleted in the meantime (F44)
    ]
