"""`python -m bench.peers.fastapi_pgqueuer`: a route that enqueues one job, on DATABASE_URL."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from bench.baselines.as_written import WebhookIn, serve
from bench.peers.driver import Enqueue
from bench.peers.pgqueuer import Pgqueuer


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Pgqueuer().enqueueing(os.environ["DATABASE_URL"]) as enqueue:
        app.state.enqueue = enqueue
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks", status_code=202)
async def receive_webhook(webhook: WebhookIn) -> dict[str, str]:
    enqueue: Enqueue = app.state.enqueue
    return {"id": str(await enqueue(webhook.idempotency_key))}


if __name__ == "__main__":
    serve(app)
