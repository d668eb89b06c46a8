"""`Inbox`: handlers and tables of an application, run by `ackbox serve` or inside another app."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from ackbox import application_calls
from ackbox.app import (
    NO_SOURCES,
    App,
    Sources,
    build_sources,
    declare_sources,
    warn_of_open_sources,
)
from ackbox.config import (
    Given,
    Resolved,
    SourceTable,
    read_overrides,
    resolve_process,
)
from ackbox.errors import InvalidEvent, SettingError, StartupError
from ackbox.handlers import Handler, Registry, check_parameters, describe
from ackbox.http.asgi import Mounted, build_asgi, build_probes
from ackbox.http.server import run, serve
from ackbox.model import (
    APP_SOURCE,
    InboxMigration,
    Receipt,
    UserTables,
    check_name,
    make_sent_event,
)
from ackbox.runtime import Runtime
from ackbox.text import find_unstorable, one_line

H = TypeVar("H", bound=Handler)

_SHOWN = 60
_NOT_SHARED = (
    "Only one process can hold a SQLite ledger: use `ackbox serve`, which accepts events and "
    "processes them, or set ACKBOX_DATABASE_URL to a PostgreSQL database, which many can share."
)


class Inbox:
    """A durable inbox. Its settings come from the environment and `ackbox.toml`, which are read at
    the start. `settings` overrides some of them, as in `Inbox(settings={"max_attempts": 3})`."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._overrides = read_overrides(settings or {}, "Inbox(settings=...)")
        self._registry = Registry()
        self._sources: dict[str, SourceTable] = {}
        self._schemas: list[str] = []
        self._migrations: list[InboxMigration] = []
        self._mounted = Mounted()

    def on(
        self,
        pattern: str,
        *,
        source: str | None = None,
        max_attempts: int | None = None,
        timeout: str | timedelta | None = None,
        concurrency: int | None = None,
    ) -> Callable[[H], H]:
        """Handle events whose type matches: `invoice.paid`, `invoice.*`, or `*`."""
        if not isinstance(pattern, str):
            raise StartupError(f"@inbox.on takes a pattern, as in @inbox.on('*'), not {pattern!r}.")

        def register(handler: H) -> H:
            self._registry.add(
                describe(
                    handler,
                    pattern,
                    source,
                    max_attempts=max_attempts,
                    timeout=timeout,
                    concurrency=concurrency,
                )
            )
            return handler

        return register

    def source(self, name: str, **words: object) -> None:
        """Receive the webhooks of a real sender at `/in/NAME`, as in
        `inbox.source("github", preset="github", secret="env:GITHUB_SECRET")`. The words are those
        of a table `[sources.NAME]`. The secret is read when the inbox starts."""
        if not isinstance(name, str):
            raise SettingError(f"inbox.source takes a name as text, not {name!r}.")
        table = SourceTable(name, words, f"inbox.source({name!r})")
        if name in self._sources:
            raise SettingError(f"inbox.source({name!r}) is declared twice: change one of them.")
        declare_sources({name: table})
        self._sources[name] = table

    def schema(self, sql: str) -> None:
        """Add DDL of your own tables, run at every start: write `CREATE TABLE IF NOT EXISTS`."""
        if not isinstance(sql, str):
            raise StartupError(f"inbox.schema takes SQL as text, not {sql!r}.")
        _check_sql(f"inbox.schema({one_line(sql, _SHOWN)!r})", sql)
        self._schemas.append(sql)

    def migration(self, name: str, sql: str) -> None:
        """Add a change to your own tables, applied once: at the first start after it was added.
        Migrations run after `schema`, in the order of their declaration. Never change the SQL of a
        migration that was applied."""
        self._migrations.append(_check_migration(name, sql, self._migrations))

    async def read(self, sql: str, /, **params: object) -> list[dict[str, Any]]:
        """Run one SELECT, on a connection that does not block the writer. It may read your tables
        and ackbox's tables. On PostgreSQL, ackbox's tables need qualified names, such as
        `ackbox.events`."""
        check_parameters(params, "inbox.read")
        return await self._mounted.runtime.reader.query(sql, params)

    def read_sync(self, sql: str, /, **params: object) -> list[dict[str, Any]]:
        """Run one SELECT as `read` does, and block until the rows are there. This method is for
        plain handlers and other threads; on the event loop's own thread it raises RuntimeError."""
        check_parameters(params, "inbox.read_sync")
        return application_calls.read_sync(self._mounted.runtime, sql, params)

    async def send(
        self,
        event_type: str,
        payload: Any = None,
        *,
        key: str,
        source: str = APP_SOURCE,
        lane: str | None = None,
    ) -> Receipt:
        """Record an event from your own code, and return its receipt when the event is durable. A
        payload of bytes is kept as it is; any other value becomes JSON. A key that this source has
        sent before makes no second event."""
        sent = make_sent_event(event_type, payload, key=key, source=source, lane=lane)
        return await application_calls.send(self._mounted.runtime, sent)

    def send_sync(
        self,
        event_type: str,
        payload: Any = None,
        *,
        key: str,
        source: str = APP_SOURCE,
        lane: str | None = None,
    ) -> Receipt:
        """Record an event as `send` does, and block until the event is durable. This method is for
        plain handlers and other threads; on the event loop's own thread it raises RuntimeError."""
        sent = make_sent_event(event_type, payload, key=key, source=source, lane=lane)
        return application_calls.send_sync(self._mounted.runtime, sent)

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """Run the inbox as long as your app runs: `FastAPI(lifespan=inbox.lifespan)`."""
        resolved = self.resolve(embedded=True)
        app = App(
            resolved.settings,
            sources=build_sources(resolved.sources),
            ledger_origin=resolved.ledger_origin,
            guest=True,
        )
        async with self.running(app):
            yield

    def asgi(self) -> Mounted:
        """Return the app for `app.mount("/inbox", inbox.asgi())`. It responds 503 until the
        lifespan has started."""
        return self._mounted

    def serve(self, overrides: Mapping[str, Given] | None = None) -> int:
        """Serve until a signal, and return the exit code of the process."""
        return run(self._serve(self.resolve(overrides)))

    def work(self, overrides: Mapping[str, Given] | None = None) -> int:
        """Process events until a signal, accept no new events, and return the exit code of the
        process."""
        resolved = self.resolve(overrides)
        if resolved.settings.database_url is None:
            raise SettingError(_NOT_SHARED)
        if not resolved.settings.worker_count:
            raise SettingError("WORKER_COUNT=0 leaves nothing to do: at least 1 is expected.")
        return run(self._work(resolved))

    @property
    def tables(self) -> UserTables:
        """The declared tables, for the start and for `ackbox migrate`."""
        return UserTables(tuple(self._schemas), tuple(self._migrations))

    def resolve(
        self, overrides: Mapping[str, Given] | None = None, *, embedded: bool = False
    ) -> Resolved:
        """Read the settings now. `overrides` win over those given to the constructor."""
        given = {**self._overrides, **(overrides or {})}
        return resolve_process(given, embedded=embedded, sources=self._sources)

    @asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[Runtime]:
        """Run the inbox, for `lifespan` and the test harness. The ledger is always released."""
        runtime = self._make_runtime(app)
        try:
            await runtime.start()
            yield runtime
        finally:
            await runtime.stop()

    async def _serve(self, resolved: Resolved) -> int:
        sources = build_sources(resolved.sources)
        runtime = self._make_process(resolved, sources)
        for caution in warn_of_open_sources(resolved.settings, resolved.sources):
            runtime.logger.warning("caution", reason=caution)
        return await serve(build_asgi(runtime), runtime)

    async def _work(self, resolved: Resolved) -> int:
        runtime = self._make_process(resolved)
        return await serve(build_probes(runtime), runtime)

    def _make_process(self, resolved: Resolved, sources: Sources = NO_SOURCES) -> Runtime:
        app = App(resolved.settings, sources=sources, ledger_origin=resolved.ledger_origin)
        runtime = self._make_runtime(app)
        for caution in resolved.warn_of_variables():
            runtime.logger.warning("caution", reason=caution)
        return runtime

    def _make_runtime(self, app: App) -> Runtime:
        if self._mounted.is_running:
            raise StartupError(
                "This Inbox is already running: give its lifespan to one app only, and do not "
                "serve it too."
            )
        runtime = Runtime(app, self._registry, self.tables)
        self._mounted.attach(runtime)
        return runtime


def _check_migration(name: object, sql: object, declared: list[InboxMigration]) -> InboxMigration:
    if not isinstance(name, str) or not isinstance(sql, str):
        raise StartupError(f"inbox.migration takes a name and SQL as text, not {name!r}, {sql!r}.")
    try:
        check_name("its name", name)
    except InvalidEvent as error:
        raise StartupError(f"inbox.migration({name!r}): {error}.") from None
    if any(migration.name == name for migration in declared):
        raise StartupError(f"inbox.migration({name!r}) is declared twice: change one of the names.")
    _check_sql(f"inbox.migration({name!r})", sql)
    return InboxMigration(name, sql)


def _check_sql(declared: str, sql: str) -> None:
    if (flaw := find_unstorable(sql)) is not None:
        raise StartupError(f"{declared}: the SQL contains {flaw}. Remove it.")
