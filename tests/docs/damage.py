"""A ledger in which one page of events is overwritten."""

import random
from datetime import UTC, datetime
from pathlib import Path

import apsw

from ackbox.model import Envelope, Submission, seal
from ackbox.stores.sqlite.connections import open_writer
from ackbox.stores.sqlite.files import create_ledger
from ackbox.stores.sqlite.statements import blocks
from ackbox.stores.sqlite.write.record import RecordOperations

EVENTS = 500
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def make_damaged_ledger(path: Path) -> None:
    create_ledger(path)
    connection = open_writer(path, durability="full")
    operations = RecordOperations(blocks())
    submission = Submission([envelope(number) for number in range(EVENTS)])
    operations.record([submission], lambda: NOW)(connection)
    page = page_of_events(connection)
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 1024)


def envelope(number: int) -> Envelope:
    payload = b'"%0300d"' % number
    return seal(
        payload,
        NOW,
        random.getrandbits,
        source="webhooks",
        idempotency_key=f"key-{number}",
        event_type="webhook",
        transport="http",
    )


def page_of_events(connection: apsw.Connection) -> int:
    """Return the number of a page in the middle that holds rows."""
    leaves = "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path"
    pages = [int(str(row[0])) for row in connection.execute(leaves)]
    return pages[len(pages) // 2]
