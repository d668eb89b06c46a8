"""Facts as log lines, and structlog set up for the process (W14).

Lines about events carry event id and request id, never a payload, a header or a key.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TextIO

import msgspec
import structlog

from ackbox.model import Envelope, Receipt, ReceiptKind, Status
from ackbox.telemetry import (
    Answered,
    Checkpointed,
    Fact,
    Recorded,
    RecordFailed,
    Started,
    StoreRecovered,
    StoreTrouble,
)

Logger = structlog.typing.FilteringBoundLogger

_SECONDS_BETWEEN_FAILURES = 60.0
_QUIET = frozenset({"ERROR", "CRITICAL"})
_ALARMING_WAL_PAGES = 16_384
_NAMES = {
    ReceiptKind.NEW: "event received",
    ReceiptKind.DUPLICATE: "event duplicate",
    ReceiptKind.CONFLICT: "event conflict",
}


def set_up_logging(level: str, log_format: str, stream: TextIO = sys.stderr) -> Logger:
    """The logger of this process; what the standard library logs goes the same way."""
    structlog.configure(
        processors=_processors(log_format, stream),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )
    logger: Logger = structlog.get_logger()
    root = logging.getLogger()
    root.handlers = [_Forward(logger)]
    root.setLevel(level if level in _QUIET else logging.WARNING)
    return logger


class LogObserver:
    """Says what happened; a failure that lasts is said once a minute, not once a batch (F9)."""

    def __init__(self, logger: Logger, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._events_wanted = logger.is_enabled_for(logging.INFO)
        self._quiet_until = 0.0

    def observe(self, fact: Fact) -> None:
        if isinstance(fact, Answered):
            return
        match fact:
            case Recorded():
                if self._events_wanted:
                    for envelope, receipt in zip(fact.envelopes, fact.receipts, strict=True):
                        self._say_received(envelope, receipt)
            case RecordFailed():
                self._say_failed(fact)
            case Started():
                self._say_started(fact)
            case _:
                self._observe_store(fact)

    def _observe_store(self, fact: Fact) -> None:
        match fact:
            case StoreTrouble(reason):
                self._logger.error("store in trouble", reason=reason)
            case StoreRecovered():
                self._quiet_until = 0.0
                self._logger.warning("store recovered")
            case Checkpointed(_, pages, copied) if pages > _ALARMING_WAL_PAGES:
                self._logger.warning("write-ahead log is large", pages=pages, copied=copied)
            case _:
                pass

    def _say_received(self, envelope: Envelope, receipt: Receipt) -> None:
        self._logger.info(
            _NAMES[receipt.kind],
            event_id=receipt.id,
            request_id=envelope.request_id,
            source=envelope.source,
            event_type=envelope.event_type,
        )

    def _say_failed(self, fact: RecordFailed) -> None:
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _SECONDS_BETWEEN_FAILURES
            self._logger.error(
                "events not stored", events=fact.events, error=fact.error, retrying=fact.retrying
            )

    def _say_started(self, fact: Started) -> None:
        self._logger.info(
            "ready",
            pending=fact.stats.pending,
            dead_letters=fact.stats.counts[Status.FAILED],
            oldest_pending_seconds=round(fact.lag_seconds, 1),
            sqlite=fact.sqlite_version,
            durability=fact.durability,
        )


class _Lines(structlog.WriteLogger):
    """A log that cannot be written, for it is on the disk that is full, or nobody reads it any
    more, must not take down what it tells of."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warning = error = critical = msg


class _Forward(logging.Handler):
    """The standard library's records, through structlog."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )


def _processors(log_format: str, stream: TextIO) -> list[structlog.typing.Processor]:
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "pretty":
        return [*shared, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    return [*shared, structlog.processors.format_exc_info, _as_json]


def _as_json(_logger: Any, _method: str, event: structlog.typing.EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
