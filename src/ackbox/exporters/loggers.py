"""Loggers: structlog in a process of our own, the standard library's inside another app."""

import logging
import os
import sys
import sysconfig
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, TextIO

import msgspec
import structlog

from ackbox.telemetry import RUNNING

Logger = structlog.typing.FilteringBoundLogger

_BELOW = ("stack", "exception")


def set_up_logging(
    level: str,
    log_format: str,
    stream: TextIO = sys.stderr,
    packages: AbstractSet[str] = frozenset(),
) -> Logger:
    """Configure logging for this process, and return its logger. Records that the application logs
    through the standard library become lines of this logger too; records of libraries only from
    WARNING up. `packages` belong to the application, wherever they are installed."""
    structlog.configure(
        processors=_processors(log_format, stream),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(stream),
        cache_logger_on_first_use=False,
    )
    logger: Logger = structlog.get_logger()
    root = logging.getLogger()
    root.handlers = [_Forward(logger, packages)]
    root.setLevel(level)
    return logger


def guest_logger(level: str) -> Logger:
    """Return the logger of an inbox inside another app. Its lines go to the logger `ackbox` of the
    standard library, which that app configures. Nothing else in the process changes."""
    host = logging.getLogger("ackbox")
    threshold = max(logging.getLevelNamesMapping()[level], host.getEffectiveLevel())
    logger: Logger = structlog.wrap_logger(
        host,
        processors=[_for_the_host],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        cache_logger_on_first_use=True,
    )
    return logger


class _Lines(structlog.WriteLogger):
    """Write lines, and ignore a log that cannot be written: a full disk or a closed pipe must not
    stop the process that logs."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warning = error = critical = msg


class _Forward(logging.Handler):
    """Forward records of the standard library to structlog."""

    def __init__(self, logger: Logger, packages: AbstractSet[str]) -> None:
        super().__init__()
        self._logger = logger
        self._packages = packages
        paths = sysconfig.get_paths()
        folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        self._libraries = tuple(folder + os.sep for folder in folders)
        self.addFilter(self._is_wanted)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        """Return whether the record is a warning, or from the application."""
        return (
            record.levelno >= logging.WARNING
            or not record.pathname.startswith(self._libraries)
            or record.name.partition(".")[0] in self._packages
        )

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )


def _processors(log_format: str, stream: TextIO) -> list[structlog.typing.Processor]:
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        _add_event,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "pretty":
        # The default formatter shows local variables, and with them tokens and payloads.
        renderer = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        return [*shared, renderer]
    return [*shared, structlog.processors.format_exc_info, _as_json]


def _add_event(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Add the event whose handler logs, unless the line names an event itself."""
    if (claim := RUNNING.get()) is not None:
        event.setdefault("event_id", claim.id)
        event.setdefault("request_id", claim.request_id)
    return event


def _for_the_host(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> tuple[tuple[str], dict[str, Any]]:
    """Return one line for people with a traceback below it. `record.ackbox` has the fields, for
    formatters of the app."""
    exc_info = event.pop("exc_info", None)
    fields = {name: value for name, value in event.items() if name != "event"}
    pairs = (f"{name}={value}" for name, value in fields.items() if name not in _BELOW)
    below = [str(fields[name]) for name in _BELOW if name in fields]
    line = "\n".join([" ".join([str(event["event"]), *pairs]), *below])
    return (line,), {"extra": {"ackbox": fields}, "exc_info": exc_info}


def _as_json(_logger: Any, _method: str, event: structlog.typing.EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
