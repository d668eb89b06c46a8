"""Handlers: how users register them by pattern, and the arguments and exceptions they use.

A handler is `async`, or plain; a plain handler runs in a thread. Its arguments are bound by name:
`event`, and `tx` if it declares one.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ackbox.errors import InvalidEvent, InvalidStatement, StartupError
from ackbox.forms import Form, parse_form
from ackbox.model import (
    APP_SOURCE,
    PARAMETERS_LIMIT,
    EventId,
    SentEvent,
    Statement,
    check_name,
    make_sent_event,
)
from ackbox.quantities import parse_duration

Handler = Callable[..., Awaitable[None] | None]
_UNDECODABLE = (
    "event.json() cannot decode the payload: {}. Decode event.body yourself, for example with "
    "json.loads(event.body, parse_float=Decimal, parse_int=Decimal)."
)
Delay = float | str | timedelta
"""A number of seconds, a text such as `10m`, or a timedelta."""

_ARGUMENTS = frozenset({"event", "tx"})
_NO_EVENT = EventId("event")
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Retry(Exception):
    """Raise this to run the event again later. It spends an attempt."""

    after: timedelta | None = None  # also for a subclass that does not call our constructor

    def __init__(self, reason: str = "", *, after: Delay | None = None) -> None:
        super().__init__(reason or "the handler asked to run the event again")
        self.after = None if after is None else _read_delay("Retry", after)


class Snooze(Exception):
    """Raise this to run the event again later without spending an attempt. Once the event is older
    than `SNOOZE_MAX_AGE`, it counts as a `Retry`."""

    after: timedelta = timedelta(
        seconds=1
    )  # also for a subclass that does not call our constructor

    def __init__(self, reason: str = "", *, after: Delay) -> None:
        super().__init__(reason or "the handler asked to wait")
        self.after = _read_delay("Snooze", after)


def _read_delay(exception: str, after: Delay) -> timedelta:
    expected = f"{exception}(after=) takes seconds as a number, a text such as '10m' or a timedelta"
    if isinstance(after, bool) or not isinstance(after, int | float | str | timedelta):
        raise TypeError(f"{expected}, not {after!r}")
    try:
        if isinstance(after, str):
            delay = parse_duration(after)
        else:
            delay = after if isinstance(after, timedelta) else timedelta(seconds=after)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{expected}, not {after!r}: {error}") from None
    if delay < timedelta(0):
        raise ValueError(f"{expected}, of 0 or more, not {after!r}")
    return delay


class Dead(Exception):
    """Raise this to make the event a dead letter, which an operator can replay."""


class Logger(Protocol):
    """The methods of `event.logger`. Each line has the event's id."""

    def debug(self, event: str, **values: Any) -> Any: ...
    def info(self, event: str, **values: Any) -> Any: ...
    def warning(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...


class Event(Struct, frozen=True):
    """One run of an event, as its handler sees it. `run` is the fencing token, which
    never decreases."""

    id: EventId
    source: str
    idempotency_key: str
    event_type: str
    body: bytes
    headers: Mapping[str, str]
    attempts: int
    run: int
    lane: str | None
    source_sequence: int | None
    source_emitted_at: datetime | None
    created_at: datetime
    logger: Logger

    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        """Decode the payload. Raise ValueError for a number that Python's int and float cannot
        hold, such as 1.5e+9999."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.ValidationError as error:
            raise ValueError(_UNDECODABLE.format(error)) from None

    def form(self) -> Form:
        """Decode a form, urlencoded or multipart, as its Content-Type says. Raise ValueError if the
        body is no form."""
        return parse_form(self.headers.get("content-type", ""), self.body)


class Tx:
    """Collects statements on your own tables, and events to send. The commit that completes the
    event runs the statements and stores the events."""

    def __init__(self, event_id: EventId = _NO_EVENT) -> None:
        self.statements: list[Statement] = []
        self.sent: list[SentEvent] = []
        self._event_id = event_id
        self._is_open = True

    def close(self) -> None:
        """Refuse everything from now on: the run has ended."""
        self._is_open = False

    def execute(self, sql: str, /, **params: object) -> None:
        """Run a statement on your own tables if this run succeeds. Raise RuntimeError if the run
        has ended."""
        self._check_open("tx.execute")
        if not isinstance(sql, str):
            raise TypeError(f"tx.execute takes SQL as text, not {type(sql).__name__}")
        check_parameters(params, "tx.execute")
        self.statements.append(Statement(sql, params))

    def send(
        self,
        event_type: str,
        payload: Any = None,
        *,
        key: str | None = None,
        source: str = APP_SOURCE,
        lane: str | None = None,
    ) -> None:
        """Send an event if this run succeeds, exactly once. The default key consists of the id of
        the handler's event and of the number of this call, so a replay of that event sends nothing
        twice. Raise `InvalidEvent` if an argument is invalid, and RuntimeError if the run has
        ended."""
        self._check_open("tx.send")
        given = f"{self._event_id}:{len(self.sent) + 1}" if key is None else key
        self.sent.append(make_sent_event(event_type, payload, key=given, source=source, lane=lane))

    def _check_open(self, caller: str) -> None:
        if not self._is_open:
            raise RuntimeError(
                f"{caller} was called after the run had ended, so its effect would be lost: call "
                "it before the handler returns, and await the tasks that use tx."
            )


def check_parameters(params: Mapping[str, object], caller: str) -> None:
    """Refuse a statement that takes too long to prepare, before it reaches the database."""
    if len(params) > PARAMETERS_LIMIT:
        raise InvalidStatement(
            f"{caller} takes at most {PARAMETERS_LIMIT} parameters, not {len(params)}: give "
            "several statements, or one parameter with a JSON text."
        )


class Registration(Struct, frozen=True):
    """A handler and its limits; None means that the settings decide."""

    pattern: str
    source: str | None
    handler: Handler
    name: str
    takes_tx: bool
    is_async: bool
    max_attempts: int | None = None
    timeout: timedelta | None = None
    concurrency: int | None = None


class Registry:
    """The handlers by pattern. An exact type beats a prefix, and a longer prefix beats a shorter
    prefix. Between equal patterns, a handler with a source beats a handler without. The decorator
    raises an error for a tie, so the module of the handlers cannot be imported."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []
        self._cache: dict[tuple[str, str], Registration | None] = {}

    def add(self, registration: Registration) -> None:
        for other in self._registrations:
            if (other.pattern, other.source) == (registration.pattern, registration.source):
                raise StartupError(
                    f"{registration.name} and {other.name} both handle {other.pattern!r}"
                    f" of source {other.source or 'any'}: one event has one handler."
                )
        self._registrations.append(registration)
        self._cache.clear()

    def find(self, source: str, event_type: str) -> Registration | None:
        key = (source, event_type)
        if key not in self._cache:
            if len(self._cache) > _CACHE_LIMIT:
                self._cache.clear()  # types come from senders, so the cache must be bounded
            self._cache[key] = self._search(source, event_type)
        return self._cache[key]

    def __len__(self) -> int:
        return len(self._registrations)

    @property
    def names(self) -> frozenset[str]:
        """The names of the handlers; one handler may have several patterns."""
        return frozenset(r.name for r in self._registrations)

    @property
    def packages(self) -> frozenset[str]:
        """The top-level packages that define handlers."""
        modules = (getattr(r.handler, "__module__", None) or "" for r in self._registrations)
        return frozenset(module.partition(".")[0] for module in modules)

    @property
    def sources(self) -> frozenset[str]:
        """The sources that handlers name."""
        return frozenset(r.source for r in self._registrations if r.source is not None)

    def _search(self, source: str, event_type: str) -> Registration | None:
        matching = [r for r in self._registrations if _matches(r, source, event_type)]
        return max(matching, key=_rank, default=None)


_CACHE_LIMIT = 10_000


def _matches(registration: Registration, source: str, event_type: str) -> bool:
    if registration.source not in (None, source):
        return False
    prefix, star, _ = registration.pattern.partition("*")
    return event_type.startswith(prefix) if star else event_type == registration.pattern


def _rank(registration: Registration) -> tuple[bool, int, bool]:
    prefix, star, _ = registration.pattern.partition("*")
    return (not star, len(prefix), registration.source is not None)


def describe(
    handler: Handler,
    pattern: str,
    source: str | None,
    *,
    max_attempts: int | None,
    timeout: str | timedelta | None,
    concurrency: int | None,
) -> Registration:
    """Check the arguments of a decorator, so that a mistake is reported before the first event."""
    _check_types(handler, max_attempts=max_attempts, timeout=timeout, concurrency=concurrency)
    try:
        check_name("the pattern", pattern)
        if source is not None:
            check_name("the source", source)
    except InvalidEvent as error:
        raise StartupError(f"{name_of(handler)}: {error}.") from None
    if "*" in pattern[:-1]:
        raise StartupError(f"The pattern {pattern!r} may have one `*`, at its end.")
    limit = _parse_timeout(handler, timeout)
    _check_positive(handler, max_attempts=max_attempts, concurrency=concurrency, timeout=limit)
    return Registration(
        pattern,
        source,
        handler,
        name_of(handler),
        takes_tx="tx" in _arguments(handler),
        is_async=_is_async(handler),
        max_attempts=max_attempts,
        timeout=limit,
        concurrency=concurrency,
    )


def _check_types(
    handler: Handler, *, max_attempts: object, timeout: object, concurrency: object
) -> None:
    for name, value in {"max_attempts": max_attempts, "concurrency": concurrency}.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise StartupError(f"{name_of(handler)}: {name} must be a whole number, not {value!r}.")
    if timeout is not None and not isinstance(timeout, str | timedelta):
        raise StartupError(
            f"{name_of(handler)}: timeout must be a text such as '30s' or a timedelta, "
            f"not {timeout!r}."
        )


def _parse_timeout(handler: Handler, timeout: str | timedelta | None) -> timedelta | None:
    if not isinstance(timeout, str):
        return timeout
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise StartupError(
            f"{name_of(handler)}: timeout={timeout!r} is not a duration such as '30s' or '5m': "
            f"{error}."
        ) from None


def name_of(handler: Handler) -> str:
    """Return the qualified name, also of a `functools.partial` or a callable object."""
    inner = getattr(handler, "func", handler)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def _check_positive(handler: Handler, **given: int | timedelta | None) -> None:
    for name, value in given.items():
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if number is not None and number <= 0:
            raise StartupError(f"{name_of(handler)}: {name} must be more than 0, not {value}.")


def _arguments(handler: Handler) -> set[str]:
    parameters = inspect.signature(handler).parameters.values()
    names = {parameter.name for parameter in parameters}
    by_name = all(parameter.kind in _BY_NAME for parameter in parameters)
    if "event" not in names or not names <= _ARGUMENTS or not by_name:
        raise StartupError(
            f"{name_of(handler)} must take `event`, and optionally `tx`, by name; it takes "
            f"{', '.join(map(str, parameters)) or 'nothing'}."
        )
    return names


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have an async `__call__`
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
