"""The Redis stream that tells workers of new events, and its check."""

from ackbox.errors import SettingError

try:
    from ackbox.queues.doctor import examine as examine_stream
    from ackbox.queues.stream import Stream
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    raise SettingError(
        "QUEUE_URL is set, but the Redis client is not installed: pip install 'ackbox[redis]'."
    ) from None

__all__ = ["Stream", "examine_stream"]
