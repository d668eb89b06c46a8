"""`ackbox events export`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ackbox.cli.event_filters import (
    Error,
    Lane,
    Outcome,
    Parent,
    Since,
    Source,
    Status,
    Type,
    Until,
    make_filter,
)
from ackbox.cli.output import warn
from ackbox.errors import CommandFailed

if TYPE_CHECKING:
    from ackbox.model import Content, EventFilter, EventRecord
    from ackbox.ports import Reader

_PAGE = 500

Report = Callable[[int], None]
File = Annotated[
    Path | None,
    typer.Option("--file", help="Write to this new file instead of standard output."),
]


def export(  # noqa: PLR0913 - each option is an argument
    *,
    status: Status = None,
    outcome: Outcome = None,
    source: Source = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    lane: Lane = None,
    parent: Parent = None,
    file: File = None,
) -> None:
    """Write events with their payloads as JSON, one per line, oldest first.

    A payload in UTF-8 is the text in `payload`; any other is in `payload_base64`. Events that
    arrive during the export are left out. A server may run, and is not delayed.
    """
    from ackbox.app import utc_now
    from ackbox.cli.event_lookup import read_ledger
    from ackbox.maintenance import restrict_until

    now = utc_now()
    given = {"status": status, "outcome": outcome, "source": source, "type": event_type}
    given |= {"since": since, "until": until, "error": error, "lane": lane, "parent": parent}
    where = restrict_until(now, make_filter(given, now))
    with _target(file) as target, _progress() as report:
        count = read_ledger(lambda reader: _write(reader, where, target, report))
    warn(f"{count} events exported")


async def _write(reader: "Reader", where: "EventFilter", target: BinaryIO, report: Report) -> int:
    """Write the events that match, and return their number. Only a page of events and one payload
    are in memory at a time."""
    from ackbox.maintenance import pages

    count = 0
    async for events in pages(reader, where, _PAGE):
        for event in events:
            content = await reader.content(event.id)
            if content is not None:  # pruned since its page was read
                target.write(_line(event, content))
                count += 1
        report(count)
    return count


def _line(event: "EventRecord", content: "Content") -> bytes:
    import msgspec

    from ackbox.cli.event_lookup import as_builtins

    headers = msgspec.Raw((content.headers or "null").encode())
    line = {**as_builtins(event), "headers": headers, **_as_text(content.payload)}
    return msgspec.json.encode(line) + b"\n"


def _as_text(payload: bytes) -> dict[str, Any]:
    from base64 import b64encode

    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": b64encode(payload).decode()}


@contextmanager
def _target(file: Path | None) -> Iterator[BinaryIO]:
    """Open the target. A file gets its name only when it is complete."""
    if file is None:
        yield sys.stdout.buffer
        return
    if file.exists():
        raise CommandFailed(f"{file} exists already. Name a new file.")
    unfinished = file.with_name(file.name + ".part")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandFailed(f"Cannot write {unfinished}: {error.strerror}.") from None
    try:
        with os.fdopen(fd, "wb") as target:
            yield target
        unfinished.rename(file)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CommandFailed(f"Cannot write {file}: {error.strerror}.") from None
        raise


@contextmanager
def _progress() -> Iterator[Report]:
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} events"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("exporting", total=None)
        yield lambda count: bar.update(task, completed=count)
