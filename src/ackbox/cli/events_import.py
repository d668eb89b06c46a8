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
    from ackbox.model import Envelope, EventFilter
    from ackbox.ports import Ledger

Entry = tuple[int, "Envelope"]
"""An event, and the number of the line that it stands on."""

_LINES = 500
_BYTES = 4 * 1024 * 1024

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="What `events export` wrote; - is standard input."),
]
Status = Annotated[
    str | None,
    typer.Option("--status", help=f"Only lines of events that were in this state: {STATUSES}."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Record nothing; only look at every line, and count.")
]


def import_events(file: File, *, status: Status = None, dry_run: DryRun = False) -> None:
    """Record the events of an export as new ones, whatever became of them where they came from.

    A payload is the text in `payload`, or the bytes in `payload_base64`, and need not be JSON.
    Each is pending, and will be processed. A key that is known makes a line a duplicate, so an
    import that was broken off is simply started again. On SQLite, the server must be stopped.
    """
    from ackbox.config import load_from_process

    settings = load_from_process()
    where = _where(status)
    with _source(file) as stream, counter("lines") as report:
        work = _Import(settings, where, report)
        counts = work.look(stream) if dry_run else work.run(stream)
    _tell(counts, dry_run)


class _Import:
    def __init__(
        self, settings: "Settings", where: "EventFilter", report: Callable[[int], None]
    ) -> None:
        self._settings = settings
        self._where = where
        self._report = report
        self._counts: Counter[str] = Counter()

    def look(self, stream: BinaryIO) -> Counter[str]:
        for batch in self._batches(stream):
            self._counts["good"] += len(batch)
        return self._counts

    def run(self, stream: BinaryIO) -> Counter[str]:
        import asyncio

        from ackbox.app import open_ledger_to_write

        async def record() -> None:
            store = await open_ledger_to_write(self._settings)
            try:
                for batch in self._batches(stream):
                    await self._record(store, batch)
            finally:
                await store.close()

        asyncio.run(record())
        return self._counts

    async def _record(self, store: "Ledger", batch: Sequence[Entry]) -> None:
        """If one cannot be stored, the others can: then one by one."""
        try:
            receipts = await store.record([envelope for _, envelope in batch])
        except InvalidEvent as error:
            if len(batch) == 1:
                self._complain(batch[0][0], error)
                return
            for entry in batch:
                await self._record(store, [entry])
            return
        self._counts.update(receipt.kind for receipt in receipts)

    def _batches(self, stream: BinaryIO) -> Iterator[list[Entry]]:
        batch: list[Entry] = []
        size = 0
        for number, envelope in self._envelopes(stream):
            batch.append((number, envelope))
            size += len(envelope.payload)
            if len(batch) == _LINES or size >= _BYTES:
                yield batch
                self._report(number)
                batch, size = [], 0
        if batch:
            yield batch

    def _envelopes(self, stream: BinaryIO) -> Iterator[Entry]:
        from ackbox.app import utc_now
        from ackbox.cli.event_lines import matches, parse_line, read_lines, to_envelope

        most = self._settings.max_body_bytes
        for number, text in read_lines(stream, most):
            try:
                if text is None:
                    raise InvalidEvent(f"it is far longer than MAX_BODY_BYTES ({most}) allows")
                line = parse_line(text)
                if matches(line, self._where):
                    yield number, to_envelope(line, utc_now(), most)
            except InvalidEvent as error:
                self._complain(number, error)

    def _complain(self, number: int, error: InvalidEvent) -> None:
        self._counts["bad"] += 1
        warn(f"line {number}: {error}")


def _where(status: str | None) -> "EventFilter":
    from ackbox.model import EventFilter, filter_by_status

    where = EventFilter() if status is None else filter_by_status(status)
    if where is None:
        raise typer.BadParameter(f"It must be {STATUSES}.", param_hint="--status")
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


def _tell(counts: Counter[str], dry_run: bool) -> None:
    if dry_run:
        good = "1 event" if counts["good"] == 1 else f"{counts['good']} events"
        typer.echo(f"{good} would be recorded, known keys as duplicates")
    else:
        kinds = ("new", "duplicate", "conflict")
        typer.echo(", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    if counts["bad"]:
        bad = "1 line was" if counts["bad"] == 1 else f"{counts['bad']} lines were"
        raise CommandFailed(f"{bad} not recorded; what is wrong is above.")
