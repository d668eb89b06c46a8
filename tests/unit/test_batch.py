"""The response to a batch when the store fails."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ackbox.byte_buffer import ByteBuffer
from ackbox.config import Settings
from ackbox.errors import Stopped
from ackbox.http.batch import BatchRoute
from ackbox.http.envelopes import EnvelopeReader
from ackbox.model import Receipt, Submission
from ackbox.runtime import Runtime
from support.http.posting import posted
from support.ledgers.events import NOON


class BrokenIngest:
    """An ingest whose writer has ended with an error that names the damaged file."""

    def __init__(self, ledger: Path) -> None:
        self.capacity = 100
        self.bytes = ByteBuffer(1 << 20, note_refusal=lambda reason: None, monotonic=lambda: 0.0)
        self._ledger = ledger

    async def submit(self, submission: Submission) -> list[Receipt]:
        raise Stopped(f"The writer stopped: The ledger {self._ledger} is damaged.")


async def test_the_lines_of_a_batch_do_not_name_the_ledger(tmp_path: Path) -> None:  # S24
    ledger = tmp_path / "events.db"
    runtime = SimpleNamespace(settings=Settings(db_path=ledger), ingest=BrokenIngest(ledger))
    route = BatchRoute(cast("Runtime", runtime), EnvelopeReader(lambda: NOON, random.getrandbits))
    messages = iter([{"type": "http.request", "body": b"\n".join([posted(), posted()])}])
    sent = b""

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message.get("body", b"")

    await route.post({}, {}, "request-1", receive, send)

    lines = [json.loads(line) for line in sent.splitlines()]
    assert [line["status"] for line in lines] == [503, 503]
    assert str(tmp_path) not in sent.decode()
