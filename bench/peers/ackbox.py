"""`python -m bench.peers.ackbox`: the same way as an HTTP request takes, without HTTP."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from secrets import randbits

from pydantic import SecretStr

from ackbox import Event
from ackbox.app import App, choose_admin, utc_now
from ackbox.config import Settings
from ackbox.inbox import Inbox
from ackbox.model import Envelope, Submission, new_event_id
from ackbox.runtime import Runtime
from bench import traffic
from bench.peers.driver import Enqueue, Ran, main

PAYLOAD = traffic.PAYLOAD.encode()
FINGERPRINT = sha256(PAYLOAD).digest()
WORKERS = int(os.environ.get("WORKER_COUNT", "10"))
CLAIM_BATCH = int(os.environ.get("CLAIM_BATCH_SIZE", "100"))


class Ackbox:
    async def prepare(self, url: str) -> None:
        await asyncio.to_thread(choose_admin(_settings(url)).migrate)

    @asynccontextmanager
    async def enqueueing(self, url: str) -> AsyncIterator[Enqueue]:
        async with _running(Inbox(), _settings(url)) as runtime:
            submit = runtime.ingest.submit
            yield lambda key: submit(Submission((_envelope(key),)))

    async def preload(self, url: str, keys: list[str]) -> None:
        async with _running(Inbox(), _settings(url)) as runtime:
            await runtime.ingest.submit(Submission([_envelope(key) for key in keys]))

    async def work(self, url: str, ran: Ran) -> None:
        inbox = Inbox()

        @inbox.on(traffic.EVENT_TYPE)
        async def do_nothing(event: Event) -> None:
            ran()

        async with _running(inbox, _settings(url, workers=WORKERS)):
            await asyncio.Event().wait()


@asynccontextmanager
async def _running(inbox: Inbox, settings: Settings) -> AsyncIterator[Runtime]:
    async with inbox.running(App(settings)) as runtime:
        yield runtime


def _settings(url: str, workers: int = 0) -> Settings:
    return Settings(
        database_url=SecretStr(url),
        worker_count=workers,
        claim_batch_size=CLAIM_BATCH,
        log_level="WARNING",
        queue_maxsize=1_000_000_000,
        retention_days=36500,  # a grown ledger is kept for longer than its rows would be
    )


def _envelope(key: str) -> Envelope:
    now = utc_now()
    event_id = new_event_id(now, randbits)
    return Envelope(
        id=event_id,
        source="webhooks",
        idempotency_key=key,
        event_type=traffic.EVENT_TYPE,
        payload=PAYLOAD,
        payload_sha256=FINGERPRINT,
        received_at=now,
        request_id=event_id,
    )


if __name__ == "__main__":
    main(Ackbox())
