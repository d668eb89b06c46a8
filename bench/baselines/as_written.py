"""The inbox most teams write first: FastAPI, a pydantic model, aiosqlite, a commit per event.

Meant to be good of its kind: one connection in WAL mode with synchronous=FULL, idempotency decided
by the insert. Autocommit because the requests share the connection: with explicit transactions one
request would commit another's half-done work.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import aiosqlite
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA busy_timeout = 5000;
CREATE TABLE IF NOT EXISTS events (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL DEFAULT 'webhooks',
    idempotency_key TEXT NOT NULL,
    event_type TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'processing', 'completed', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    retry_after TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    processed_at TEXT,
    UNIQUE (source, idempotency_key)
);
CREATE INDEX IF NOT EXISTS events_by_status ON events (status, created_at);
"""
INSERT = """
INSERT INTO events (id, idempotency_key, event_type, payload, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
RETURNING id, idempotency_key, status, created_at
"""
SELECT_BY_KEY = """
SELECT id, idempotency_key, status, created_at FROM events
WHERE source = 'webhooks' AND idempotency_key = ?
"""
SELECT_BY_ID = "SELECT id, idempotency_key, status, created_at FROM events WHERE id = ?"


class WebhookIn(BaseModel):
    idempotency_key: str = Field(min_length=1, max_length=255)
    event_type: str = Field(default="webhook", min_length=1, max_length=255)
    payload: Any


class WebhookOut(BaseModel):
    id: UUID
    idempotency_key: str
    status: Literal["pending", "processing", "completed", "failed"]
    created_at: datetime


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aiosqlite.connect(os.environ["DB_PATH"], isolation_level=None) as db:
        db.row_factory = aiosqlite.Row
        await db.executescript(SCHEMA)
        app.state.db = db
        yield


async def database(request: Request) -> aiosqlite.Connection:
    db: aiosqlite.Connection = request.app.state.db
    return db


Database = Annotated[aiosqlite.Connection, Depends(database)]
app = FastAPI(lifespan=lifespan)


@app.post("/webhooks", status_code=202)
async def receive_webhook(webhook: WebhookIn, response: Response, db: Database) -> WebhookOut:
    row = await _one(db, INSERT, _row(webhook))
    if row is None:
        response.status_code = 200
        row = await _one(db, SELECT_BY_KEY, (webhook.idempotency_key,))
    return WebhookOut.model_validate(row)


@app.get("/webhooks/{event_id}")
async def show_webhook(event_id: UUID, db: Database) -> WebhookOut:
    row = await _one(db, SELECT_BY_ID, (str(event_id),))
    if row is None:
        raise HTTPException(404, "no such event")
    return WebhookOut.model_validate(row)


def _row(webhook: WebhookIn) -> tuple[str, ...]:
    now = datetime.now(UTC).isoformat()
    payload = json.dumps(webhook.payload)
    return (str(uuid4()), webhook.idempotency_key, webhook.event_type, payload, now, now)


async def _one(
    db: aiosqlite.Connection, sql: str, parameters: tuple[str, ...]
) -> dict[str, Any] | None:
    rows = list(await db.execute_fetchall(sql, parameters))
    return dict(rows[0]) if rows else None


def serve(served: FastAPI) -> None:
    uvicorn.run(
        served,
        port=int(os.environ["PORT"]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
    )


if __name__ == "__main__":
    serve(app)
