"""`ackbox events import`."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ackbox.cli.event_filters import STATUSES
from ackbox.cli.output import warn
from ackbox.cli.progress import counter
from ackbox.errors import CommandFailed, InvalidEvent

if TYPE_CHECKING:
    from ackbox.config import Settings
    from ackbox.model import Envelope, EventFilter, EventId
    from ackbox.ports import Ledger

Entry = tuple[int, "Envelope"]
"""The number of a line, and the event in it."""

_LINES = 500

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The output of `events export`; - is standard input."),
]
Status = Annotated[
    str | None,
    typer.Option("--status", help=f"Only lines of events that were in this state: {STATUSES}."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Record nothing; check and count the lines.")
]


def import_events(file: File, *, status: Status = None, dry_run: DryRun = False) -> None:
    """Record the events of an export as new, pending events.

    Each event is processed, whatever its status was in the export. A payload is the text in
    `payload` or the bytes in `payload_base64`, and need not be JSON. A line whose key is known is a
    duplicate, so an import that was interrupted can be run again. On SQLite, stop the server first.
    """
    from ackbox.config import load_from_process

    settings = load_from_process()
    where = _where(status)
    with _source(file) as stream, counter("lines") as report:
        work = Import(where, report, max_body=settings.max_body_bytes)
        counts = work.check(stream) if dry_run else _record(settings, work, stream)
    _print_counts(counts, dry_run)


class Import:
    """The lines of one file, recorded or only checked, and counted by their results."""

    def __init__(
        self,
        where: "EventFilter",
        report: Callable[[int], None],
        *,
        max_body: int,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        self._where = where
        self._report = report
        self._max_body = max_body
        self._batch_bytes = batch_bytes
        self._counts: Counter[str] = Counter()
        self._deliveries: dict[str, EventId] = {}
        self._known: dict[EventId, EventId] = {}

    def check(self, stream: BinaryIO) -> Counter[str]:
        for batch in self._batches(stream):
            self._counts["good"] += len(batch)
        return self._counts

    async def record(self, ledger: "Ledger", stream: BinaryIO) -> Counter[str]:
        for batch in self._batches(stream):
            await self._record(ledger, batch)
        return self._counts

    async def _record(self, ledger: "Ledger", batch: Sequence[Entry]) -> None:
        """Record a batch. If one event is invalid, record the events one by one."""
        from ackbox.model import Submission

        try:
            receipts = await ledger.record([Submission([envelope for _, envelope in batch])])
        except InvalidEvent as error:
            if len(batch) == 1:
                self._report_bad_line(batch[0][0], error)
                return
            for entry in batch:
                await self._record(ledger, [entry])
            return
        self._counts.update(receipt.kind for receipt in receipts)
        for (_, envelope), receipt in zip(batch, receipts, strict=True):
            if envelope.outcome is not None:
                self._known[envelope.id] = receipt.id

    def _batches(self, stream: BinaryIO) -> Iterator[list[Entry]]:
        batch: list[Entry] = []
        size = 0
        for number, envelope in self._envelopes(stream):
            batch.append((number, envelope))
            size += len(envelope.payload)
            if len(batch) == _LINES or size >= self._batch_bytes:
                yield batch
                self._report(number)
                batch, size = [], 0
        if batch:
            yield batch

    def _envelopes(self, stream: BinaryIO) -> Iterator[Entry]:
        from ackbox.app import utc_now
        from ackbox.cli.event_lines import matches, parse_line, read_lines, to_envelope

        for number, text in read_lines(stream, self._max_body):
            try:
                if text is None:
                    raise InvalidEvent(f"it is too long; MAX_BODY_BYTES is {self._max_body}")
                line = parse_line(text)
                if matches(line, self._where):
                    envelope = to_envelope(line, utc_now(), self._max_body)
                    yield number, self._with_new_parent(envelope, str(line.other.id))
            except InvalidEvent as error:
                self._report_bad_line(number, error)

    def _with_new_parent(self, envelope: "Envelope", old_id: str) -> "Envelope":
        """Return an item with the new id of its delivery, which comes before its items in an
        export. Only deliveries are remembered, not every event."""
        from msgspec.structs import replace

        if envelope.outcome is not None:
            self._deliveries[old_id] = envelope.id
        delivery = self._deliveries.get(envelope.parent_id or "")
        if delivery is None:
            return envelope
        return replace(envelope, parent_id=self._known.get(delivery, delivery))

    def _report_bad_line(self, number: int, error: InvalidEvent) -> None:
        self._counts["bad"] += 1
        warn(f"line {number}: {error}")


def _record(settings: "Settings", work: Import, stream: BinaryIO) -> Counter[str]:
    import asyncio

    from ackbox.app import choose_backend, utc_now

    async def record() -> Counter[str]:
        store = await choose_backend(settings).open_for_command(utc_now)
        try:
            return await work.record(store, stream)
        finally:
            await store.close()

    return asyncio.run(record())


def _where(status: str | None) -> "EventFilter":
    from ackbox.model import EventFilter, filter_by_status

    where = EventFilter() if status is None else filter_by_status(status)
    if where is None:
        raise typer.BadParameter(f"The status must be one of {STATUSES}.", param_hint="--status")
    return where


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except OSError as error:
        raise CommandFailed(f"Cannot read {name}: {error.strerror}.") from None


def _print_counts(counts: Counter[str], dry_run: bool) -> None:
    if dry_run:
        good = "1 event" if counts["good"] == 1 else f"{counts['good']} events"
        typer.echo(f"{good} would be recorded, known keys as duplicates")
    else:
        kinds = ("new", "duplicate", "conflict")
        typer.echo(", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    if counts["bad"]:
        bad = "1 line was" if counts["bad"] == 1 else f"{counts['bad']} lines were"
        raise CommandFailed(f"{bad} not recorded; the reasons are above.")
