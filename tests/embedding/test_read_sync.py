"""`inbox.read_sync`: the read path for code that runs in a thread (N11)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Event, Inbox, Tx
from ackbox.application_calls import read_sync
from ackbox.errors import InvalidStatement, Stopped, Unavailable
from ackbox.model import Submission
from support.databases.postgres import Install, PostgresServer, find_installs
from support.ledgers.events import envelope
from support.time.polling import until

SALES = "CREATE TABLE IF NOT EXISTS sales (item TEXT PRIMARY KEY, total INTEGER)"
UPSERT = (
    "INSERT INTO sales VALUES ('tea', :total) "
    "ON CONFLICT (item) DO UPDATE SET total = excluded.total"
)
TOTAL = "SELECT total FROM sales WHERE item = :item"


@pytest.fixture(params=["sqlite", "postgres"])
def settings(
    request: pytest.FixtureRequest,
    settings: dict[str, Any],
    postgres_of: Callable[[Install], PostgresServer],
) -> Iterator[dict[str, Any]]:
    if request.param == "sqlite":
        yield settings
        return
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    yield {"database_url": url, "api_token": settings["api_token"]}
    server.recycle_database(url)


@pytest.fixture
async def inbox(settings: dict[str, Any]) -> AsyncIterator[Inbox]:
    """An inbox that runs on the event loop of the test."""
    made = Inbox(settings)
    made.schema(SALES)
    made.schema("INSERT INTO sales VALUES ('tea', 3) ON CONFLICT DO NOTHING")
    async with made.lifespan(None):
        yield made


async def test_a_plain_handler_reads_its_own_tables(settings: dict[str, Any]) -> None:  # N11
    inbox = Inbox(settings)
    inbox.schema(SALES)

    @inbox.on("sale")
    def add(event: Event, tx: Tx) -> None:
        rows = inbox.read_sync(TOTAL, item="tea")
        total = (rows[0]["total"] if rows else 0) + 1
        tx.execute(UPSERT, total=total)

    async with inbox.lifespan(None):
        ingest = inbox.asgi().runtime.ingest
        for number in range(1, 4):
            sale = envelope(f"key-{number}", event_type="sale", lane="tea")
            await ingest.submit(Submission((sale,)))
        await until(lambda: is_sold(inbox, 3))


async def is_sold(inbox: Inbox, total: int) -> bool:
    return await inbox.read(TOTAL, item="tea") == [{"total": total}]


async def test_any_thread_may_read(inbox: Inbox) -> None:
    assert await asyncio.to_thread(inbox.read_sync, TOTAL, item="tea") == [{"total": 3}]


async def test_many_threads_may_read_at_once(inbox: Inbox) -> None:
    reads = [asyncio.to_thread(inbox.read_sync, TOTAL, item="tea") for _ in range(40)]
    assert await asyncio.gather(*reads) == [[{"total": 3}]] * 40


async def test_the_thread_of_the_event_loop_gets_an_error_instead_of_a_deadlock(
    inbox: Inbox,
) -> None:
    with pytest.raises(RuntimeError, match=r"await inbox\.read"):
        inbox.read_sync(TOTAL, item="tea")
    assert await inbox.read(TOTAL, item="tea") == [{"total": 3}]


async def test_an_error_of_the_query_reaches_the_thread(inbox: Inbox) -> None:
    with pytest.raises(InvalidStatement, match="nowhere"):
        await asyncio.to_thread(inbox.read_sync, "SELECT * FROM nowhere")


async def test_a_thread_does_not_wait_for_ever_for_a_blocked_event_loop(inbox: Inbox) -> None:
    outcome: list[BaseException] = []
    runtime = inbox.asgi().runtime

    def read() -> None:
        try:
            read_sync(runtime, TOTAL, {"item": "tea"}, seconds=0.1)
        except Unavailable as error:
            outcome.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    reading.join(10)  # this blocks the event loop
    assert "event loop is blocked" in str(outcome[0])


def test_a_test_client_may_read_beside_the_app(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    inbox.schema(SALES)
    app = FastAPI(lifespan=inbox.lifespan)
    with TestClient(app):
        assert inbox.read_sync("SELECT count(*) AS n FROM sales") == [{"n": 0}]
    with pytest.raises(Stopped):
        inbox.read_sync("SELECT count(*) AS n FROM sales")


async def test_reading_before_the_start_and_after_the_stop_is_refused(
    settings: dict[str, Any],
) -> None:
    inbox = Inbox(settings)
    with pytest.raises(Stopped):
        inbox.read_sync("SELECT 1")
    async with inbox.lifespan(None):
        pass
    with pytest.raises(Stopped):
        await asyncio.to_thread(inbox.read_sync, "SELECT 1")


def test_a_loop_that_is_stopped_and_not_closed_is_not_waited_for(settings: dict[str, Any]) -> None:
    inbox = Inbox(settings)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(start_and_stop(inbox))
        with pytest.raises(Stopped):
            read_sync(inbox.asgi().runtime, "SELECT 1", {}, seconds=5)
    finally:
        loop.close()


def test_a_new_thread_may_have_the_id_of_the_loops_thread(settings: dict[str, Any]) -> None:
    """The system gives the id of a thread that ended to another."""
    inbox = Inbox(settings)
    run_in_thread(lambda: asyncio.run(start_and_stop(inbox)))
    runtime = inbox.asgi().runtime
    errors: list[type] = []

    def read() -> None:
        try:
            read_sync(runtime, "SELECT 1", {})
        except (Stopped, RuntimeError) as error:
            errors.append(type(error))

    for _ in range(20):
        run_in_thread(read)
    assert set(errors) == {Stopped}


async def start_and_stop(inbox: Inbox) -> None:
    async with inbox.lifespan(None):
        pass


def run_in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
