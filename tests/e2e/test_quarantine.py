"""A store that hangs or fails delays no response to a request that is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from ackbox import Inbox
from ackbox.app import App, build_sources
from ackbox.config import Settings, SourceTable
from ackbox.errors import Unavailable
from ackbox.model import QuarantineFilter
from ackbox.runtime import Runtime
from ackbox.stores.sqlite.write.quarantine import SqliteQuarantine
from support.http.deliveries import signed_by_github
from support.time.polling import until

WORDS = {"preset": "github", "secret": "env:GITHUB_KEY"}
Post = Callable[[int], Awaitable[list[int]]]


@asynccontextmanager
async def refusing(folder: Path) -> AsyncIterator[tuple[Runtime, Post]]:
    """Run an inbox with a wrong secret; yield it and a function that delivers some requests."""
    table = SourceTable("github", WORDS, "test")
    inbox = Inbox()
    app = App(
        Settings(db_path=folder / "inbox.db"),
        sources=build_sources({"github": table}, lambda _: b"an old key"),
        guest=True,
    )
    async with inbox.running(app) as runtime:
        transport = httpx2.ASGITransport(app=inbox.asgi())
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:

            async def post(count: int) -> list[int]:
                sent = [signed_by_github(b"{}", f"delivery-{n}") for n in range(count)]
                responses = [
                    await client.post("/in/github", content=b"{}", headers=headers)
                    for headers in sent
                ]
                return [response.status_code for response in responses]

            yield runtime, post


async def kept(runtime: Runtime) -> int:
    return len((await runtime.reader.quarantine.page(QuarantineFilter(), limit=100)).items)


async def test_a_store_that_hangs_delays_no_401(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    original = SqliteQuarantine.keep

    async def hang(self: SqliteQuarantine, *args: Any) -> Sequence[bool]:
        await released.wait()
        return await original(self, *args)

    monkeypatch.setattr(SqliteQuarantine, "keep", hang)
    async with refusing(tmp_path) as (runtime, post):
        started = monotonic()
        assert await post(20) == [401] * 20
        assert monotonic() - started < 5
        assert await kept(runtime) == 0
        released.set()
        await until(lambda: _is_kept(runtime, 20))


async def test_requests_are_kept_when_a_store_that_failed_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [Unavailable("away")] * 2
    original = SqliteQuarantine.keep

    async def fail(self: SqliteQuarantine, *args: Any) -> Sequence[bool]:
        if failures:
            raise failures.pop()
        return await original(self, *args)

    monkeypatch.setattr(SqliteQuarantine, "keep", fail)
    async with refusing(tmp_path) as (runtime, post):
        assert await post(3) == [401] * 3
        await until(lambda: _is_kept(runtime, 3))
        assert runtime.refusals() == {"github": 3}


async def test_what_waits_in_memory_is_kept_once_by_an_orderly_stop(tmp_path: Path) -> None:
    async with refusing(tmp_path) as (_, post):
        await post(5)
    async with refusing(tmp_path) as (runtime, _):
        assert await kept(runtime) == 5


async def _is_kept(runtime: Runtime, count: int) -> bool:
    return await kept(runtime) == count
