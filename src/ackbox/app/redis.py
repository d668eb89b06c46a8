"""The Redis stream that tells workers of new events, in front of the database's own queue."""

from typing import Protocol

from ackbox.errors import SettingError
from ackbox.model import Finding
from ackbox.ports import EventQueue, Relay
from ackbox.services import Services
from ackbox.telemetry import Observer

try:
    from ackbox.queues import doctor
    from ackbox.queues.redis_streams import RedisQueue
    from ackbox.queues.stream import Stream
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    raise SettingError(
        "QUEUE_URL is set, but the Redis client is not installed: pip install 'ackbox[redis]'."
    ) from None


class Shared(Protocol):
    """A store that many instances share."""

    @property
    def queue(self) -> EventQueue: ...

    def notify(self) -> None: ...

    def attach_relay(self, relay: Relay) -> None: ...


def attach_queue(url: str, store: Shared, observe: Observer, services: Services) -> None:
    stream = Stream(url, observe)
    store.attach_relay(RedisQueue(store.queue, stream, fallback=store.notify, services=services))


def examine_queue(url: str) -> Finding:
    return doctor.examine(url)
