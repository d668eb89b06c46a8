"""`python -m bench.peers.procrastinate`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.peers.driver import PAYLOAD, Enqueue, Ran, main

CONNECTIONS = 20
CONCURRENCY = 20


class Procrastinate:
    async def prepare(self, url: str) -> None:
        async with _app(url).open_async() as app:
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def enqueueing(self, url: str) -> AsyncIterator[Enqueue]:
        async with _app(url).open_async() as app:
            defer = app.configure_task("job").defer_async
            yield lambda key: defer(key=key, payload=PAYLOAD)

    async def preload(self, url: str, keys: list[str]) -> None:
        async with _app(url).open_async() as app:
            jobs = [{"key": key, "payload": PAYLOAD} for key in keys]
            await app.configure_task("job").batch_defer_async(*jobs)

    async def work(self, url: str, ran: Ran) -> None:
        app = _app(url)

        async def job(key: str, payload: Any) -> None:
            ran()

        app.task(name="job")(job)
        async with app.open_async():
            await app.run_worker_async(
                concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
            )


def _app(url: str) -> App:
    return App(connector=PsycopgConnector(conninfo=url, min_size=CONNECTIONS, max_size=CONNECTIONS))


if __name__ == "__main__":
    main(Procrastinate())
