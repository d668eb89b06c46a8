"""New events by a Redis stream, before the queue of the database."""

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
    """A store of which many instances have one each."""

    @property
    def queue(self) -> EventQueue: ...

    def notify(self) -> None: ...

    def hand_over(self, relay: Relay) -> None: ...


def put_queue_before(url: str, store: Shared, observe: Observer, services: Services) -> None:
    stream = Stream(url, observe)
    store.hand_over(RedisQueue(store.queue, stream, fallback=store.notify, services=services))


def examine_queue(url: str) -> Finding:
    return doctor.examine(url)
