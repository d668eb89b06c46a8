"""What users import: an `Inbox` with handlers, run by `ackbox serve` or inside their own app."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from ackbox.app import App, is_shared
from ackbox.config import Settings, load_from_process, warn_of_open_ingest
from ackbox.errors import SettingError
from ackbox.handlers import Handler, Registry, describe
from ackbox.http.asgi import Mounted, build_asgi, build_probes
from ackbox.http.server import run, serve
from ackbox.runtime import Runtime

H = TypeVar("H", bound=Handler)

_NOT_SHARED = (
    "Only one process can hold a SQLite ledger: use `ackbox serve`, which takes events and "
    "processes them, or set DATABASE_URL to a PostgreSQL database, which many can share."
)


class Inbox:
    """A durable inbox. Settings come from the environment and `ackbox.toml` unless given."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else load_from_process()
        self._registry = Registry()
        self._schemas: list[str] = []
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
            raise SettingError(f"@inbox.on takes a pattern, as in @inbox.on('*'), not {pattern!r}.")

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

    def schema(self, sql: str) -> None:
        """DDL of your own tables, run at every start: write `CREATE TABLE IF NOT EXISTS`."""
        if not isinstance(sql, str):
            raise SettingError(f"inbox.schema takes SQL as text, not {sql!r}.")
        self._schemas.append(sql)

    async def read(self, sql: str, /, **params: object) -> list[dict[str, Any]]:
        """Read your own tables, beside the writer."""
        return await self._mounted.runtime.read(sql, params)

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """For `FastAPI(lifespan=inbox.lifespan)`: runs the inbox as long as your app runs."""
        async with self.running(App(self.settings, guest=True)):
            yield

    def asgi(self) -> Mounted:
        """For `app.mount("/inbox", inbox.asgi())`; answers 503 until the lifespan has started."""
        return self._mounted

    def serve(self) -> int:
        """Serve until a signal; returns the exit code of the process."""
        return run(self._serve())

    def work(self) -> int:
        """Process events until a signal, and take none; returns the exit code of the process."""
        if not is_shared(self.settings):
            raise SettingError(_NOT_SHARED)
        if not self.settings.worker_count:
            raise SettingError("WORKER_COUNT=0 leaves nothing to do: at least 1 is expected.")
        return run(self._work())

    @asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[Runtime]:
        """What `lifespan` and the test harness do; whatever happens, the ledger is let go of."""
        runtime = self._made(app)
        try:
            await runtime.start()
            yield runtime
        finally:
            await runtime.stop()

    async def _serve(self) -> int:
        runtime = self._made(App(self.settings))
        for caution in warn_of_open_ingest(self.settings):
            runtime.logger.warning("caution", reason=caution)
        return await serve(build_asgi(runtime), runtime)

    async def _work(self) -> int:
        runtime = self._made(App(self.settings))
        return await serve(build_probes(runtime), runtime)

    def _made(self, app: App) -> Runtime:
        if self._mounted.is_running:
            raise SettingError(
                "This Inbox runs already: give its lifespan to one app, and do not serve it too."
            )
        runtime = Runtime(app, self._registry, self._schemas)
        self._mounted.put(runtime)
        return runtime
