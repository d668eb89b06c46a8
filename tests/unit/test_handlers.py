"""Patterns, limits and arguments of handlers."""

import functools
from datetime import timedelta
from typing import Any, cast

import pytest

from ackbox.errors import InvalidStatement, StartupError
from ackbox.handlers import Registration, Registry, Retry, Snooze, Tx, describe
from ackbox.inbox import Inbox


def handle(event: object) -> None: ...


def register(registry: Registry, pattern: str, source: str | None = None) -> None:
    registry.add(registration(handle, pattern, source))


def registration(
    handler: Any = handle, pattern: str = "*", source: str | None = None, **limits: Any
) -> Registration:
    given = {"max_attempts": None, "timeout": None, "concurrency": None, **limits}
    return describe(handler, pattern, source, **given)


def matched(registry: Registry, source: str, event_type: str) -> tuple[str, str | None] | None:
    match = registry.find(source, event_type)
    return None if match is None else (match.pattern, match.source)


ALL = [
    ("*", None),
    ("*", "stripe"),
    ("invoice.*", None),
    ("invoice.*", "stripe"),
    ("invoice.p*", None),
    ("invoice.paid", None),
    ("invoice.paid", "stripe"),
]


@pytest.mark.parametrize(
    ("source", "event_type", "expected"),
    [
        ("stripe", "invoice.paid", ("invoice.paid", "stripe")),
        ("shop", "invoice.paid", ("invoice.paid", None)),
        ("stripe", "invoice.pending", ("invoice.p*", None)),  # a longer prefix beats a source
        ("stripe", "invoice.void", ("invoice.*", "stripe")),
        ("shop", "invoice.void", ("invoice.*", None)),
        ("shop", "invoice.", ("invoice.*", None)),
        ("stripe", "invoice", ("*", "stripe")),
        ("shop", "other", ("*", None)),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_the_most_specific_pattern_wins(
    source: str, event_type: str, expected: tuple[str, str | None], order: int
) -> None:
    registry = Registry()
    for pattern, of in ALL[::order]:
        register(registry, pattern, of)
    assert matched(registry, source, event_type) == expected
    assert matched(registry, source, event_type) == expected  # from the cache


def test_an_exact_type_beats_a_source_and_any_prefix() -> None:
    registry = Registry()
    register(registry, "invoice.paid*", "stripe")
    register(registry, "invoice.paid")
    assert matched(registry, "stripe", "invoice.paid") == ("invoice.paid", None)


def test_an_event_may_have_no_handler() -> None:
    registry = Registry()
    register(registry, "invoice.*", "stripe")
    assert registry.find("shop", "invoice.paid") is None
    assert registry.find("stripe", "charge") is None


def test_a_handler_added_later_is_found() -> None:
    registry = Registry()
    assert registry.find("shop", "a") is None
    register(registry, "a")
    assert registry.find("shop", "a") is not None


def test_the_cache_of_types_is_bounded() -> None:
    registry = Registry()
    register(registry, "*")
    for n in range(25_000):
        registry.find("shop", f"type-{n}")
    assert len(registry._cache) <= 10_001


@pytest.mark.parametrize("source", [None, "stripe"])
def test_a_tie_is_an_error_at_the_start(source: str | None) -> None:
    registry = Registry()
    register(registry, "invoice.*", source)
    with pytest.raises(StartupError, match="both handle 'invoice"):
        register(registry, "invoice.*", source)


def test_the_sources_that_handlers_name_are_known() -> None:
    registry = Registry()
    register(registry, "a", "stripe")
    register(registry, "a")
    assert registry.sources == {"stripe"}


class Callable_:  # noqa: N801
    def __call__(self, event: object, tx: object) -> None: ...


class AsyncCallable:
    async def __call__(self, event: object) -> None: ...


async def waits(event: object) -> None: ...


def keyword_only(*, event: object, tx: object) -> None: ...


def with_more(event: object, tx: object, colour: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "takes_tx", "is_async", "name"),
    [
        (handle, False, False, "handle"),
        (waits, False, True, "waits"),
        (keyword_only, True, False, "keyword_only"),
        (Callable_(), True, False, "Callable_"),
        (AsyncCallable(), False, True, "AsyncCallable"),
        (AsyncCallable().__call__, False, True, "AsyncCallable.__call__"),
        (functools.partial(waits), False, True, "waits"),
        (lambda event: None, False, False, "<lambda>"),
    ],
)
def test_a_handler_may_be_any_callable(
    handler: Any, takes_tx: bool, is_async: bool, name: str
) -> None:
    made = registration(handler)
    assert (made.takes_tx, made.is_async) == (takes_tx, is_async)
    assert made.name.endswith(name)


def nothing() -> None: ...


def other_name(evt: object) -> None: ...


def positional(event: object, /) -> None: ...


def anything(event: object, **more: object) -> None: ...


def several(event: object, *more: object) -> None: ...


@pytest.mark.parametrize("handler", [nothing, other_name, positional, with_more, anything, several])
def test_a_handler_with_unknown_arguments_is_an_error_at_the_start(handler: Any) -> None:
    with pytest.raises(StartupError, match="must take `event`"):
        registration(handler)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"pattern": ""}, "1 to 255"),
        ({"pattern": "a*b"}, "one `\\*`, at its end"),
        ({"pattern": "**"}, "at its end"),
        ({"pattern": "a\n"}, "control"),
        ({"source": ""}, "1 to 255"),
        ({"max_attempts": 0}, "max_attempts must be more than 0"),
        ({"concurrency": -1}, "concurrency must be more than 0"),
        ({"timeout": "0"}, "timeout must be more than 0"),
        ({"timeout": "soon"}, "write it as"),
        ({"timeout": "5"}, "timeout='5' is not a duration such as '30s' or '5m': add a unit"),
        ({"timeout": "30 seconds"}, "timeout='30 seconds' is not a duration"),  # N23
    ],
)
def test_invalid_limits_are_an_error_at_the_start(rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        registration(**rules)


def test_limits_are_kept_as_given() -> None:
    made = registration(max_attempts=2, timeout="1m30s", concurrency=3)
    assert (made.max_attempts, made.timeout, made.concurrency) == (2, timedelta(seconds=90), 3)


def test_tx_collects_statements_in_order() -> None:
    tx = Tx()
    tx.execute("INSERT INTO a VALUES (:sql)", sql=1)
    tx.execute("DELETE FROM b")
    assert [(s.sql, s.params) for s in tx.statements] == [
        ("INSERT INTO a VALUES (:sql)", {"sql": 1}),
        ("DELETE FROM b", {}),
    ]


@pytest.mark.parametrize("after", ["10m", timedelta(minutes=10), 600, 600.0])
def test_a_delay_may_be_a_number_a_text_or_a_timedelta(
    after: str | timedelta | float,
) -> None:  # N17
    assert Retry(after=after).after == timedelta(minutes=10)
    assert Snooze(after=after).after == timedelta(minutes=10)
    assert Retry("why", after=None).after is None
    assert str(Retry("why")) == str(Snooze("why", after=1)) == "why"


@pytest.mark.parametrize("raised", [Retry, Snooze])
@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ("10 minutes", ValueError),
        ("10", ValueError),
        (-1, ValueError),
        (timedelta(seconds=-1), ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (10**30, ValueError),
        (True, TypeError),
        (b"1m", TypeError),
    ],
    ids=repr,
)
def test_a_wrong_delay_fails_where_it_is_raised(
    raised: Any, after: object, kind: type[Exception]
) -> None:  # N17
    with pytest.raises(kind, match=rf"{raised.__name__}\(after=\) takes seconds as a number.*not"):
        raised(after=after)


@pytest.mark.parametrize(
    "rules",
    [
        {"timeout": 30},
        {"timeout": 1.5},
        {"max_attempts": "3"},
        {"max_attempts": True},
        {"concurrency": 2.5},
    ],
    ids=repr,
)
def test_a_limit_of_the_wrong_type_is_refused_in_one_line(rules: dict[str, Any]) -> None:
    (name,) = rules
    with pytest.raises(StartupError, match=f"{name} must be"):
        Inbox().on("a", **rules)(handle)


def test_a_decorator_without_parentheses_is_refused() -> None:
    with pytest.raises(StartupError, match="takes a pattern"):
        Inbox().on(cast("Any", handle))


def test_a_schema_that_is_no_text_is_refused() -> None:
    with pytest.raises(StartupError, match=r"inbox\.schema"):
        Inbox().schema(cast("Any", None))


def test_a_statement_takes_at_most_1000_parameters() -> None:
    """SQLite needs seconds to prepare a statement with 20,000 names, and other events wait."""
    tx = Tx()
    tx.execute("DELETE FROM mine", **{f"p{n}": n for n in range(1000)})
    with pytest.raises(InvalidStatement, match=r"^tx\.execute takes at most 1000 parameters"):
        tx.execute("DELETE FROM mine", **{f"p{n}": n for n in range(1001)})
    assert len(tx.statements) == 1


async def test_a_query_takes_at_most_1000_parameters() -> None:
    params = {f"p{n}": n for n in range(1001)}
    with pytest.raises(InvalidStatement, match=r"^inbox\.read takes at most 1000 parameters"):
        await Inbox().read("SELECT 1", **params)
    with pytest.raises(InvalidStatement, match=r"^inbox\.read_sync takes at most 1000 parameters"):
        Inbox().read_sync("SELECT 1", **params)
