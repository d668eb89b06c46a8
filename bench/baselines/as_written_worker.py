"""The as-written inbox with its workers: ids through an asyncio.Queue, two commits per event.

Workers and requests share the one connection, and so its one thread: writers on connections of
their own would wait for each other's locks instead.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiosqlite
from fastapi import FastAPI, Request, Response

from bench.baselines import as_written
from bench.baselines.as_written import Database, WebhookIn, WebhookOut

WORKER_COUNT = int(os.environ.get("WORKER_COUNT", "10"))
UNFINISHED = "SELECT id FROM events WHERE status IN ('pending', 'processing') ORDER BY created_at"
START = """
UPDATE events SET status = 'processing', attempts = attempts + 1, updated_at = ?
WHERE id = ? RETURNING event_type, payload
"""
COMPLETE = """
UPDATE events SET status = 'completed', updated_at = ?, processed_at = ? WHERE id = ?
"""
Waiting = asyncio.Queue[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with as_written.lifespan(app):
        db: aiosqlite.Connection = app.state.db
        waiting = app.state.waiting = Waiting()
        for row in await db.execute_fetchall(UNFINISHED):
            waiting.put_nowait(row[0])
        workers = [asyncio.create_task(_work(db, waiting)) for _ in range(WORKER_COUNT)]
        yield
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks", status_code=202)
async def receive_webhook(
    webhook: WebhookIn, request: Request, response: Response, db: Database
) -> WebhookOut:
    created = await as_written.receive_webhook(webhook, response, db)
    if response.status_code != 200:
        request.app.state.waiting.put_nowait(str(created.id))
    return created


async def _work(db: aiosqlite.Connection, waiting: Waiting) -> None:
    while True:
        await _process(db, await waiting.get())


async def _process(db: aiosqlite.Connection, event_id: str) -> None:
    started = await db.execute_fetchall(START, (_now(), event_id))
    for event_type, payload in started:
        await _handle(event_type, payload)
    now = _now()
    await db.execute_fetchall(COMPLETE, (now, now, event_id))


async def _handle(event_type: str, payload: str) -> None:
    """Nothing, as ackbox's handler in this comparison."""


def _now() -> str:
    return datetime.now(UTC).isoformat()


if __name__ == "__main__":
    as_written.serve(app)
