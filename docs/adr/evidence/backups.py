"""ADR 13: how far a backup in steps of 256 pages comes while an event is stored after each step."""
# ruff: noqa: T201

from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

STEPS = 100


def copy(path: Path, *, own: bool) -> str:
    writer = apsw.Connection(str(path))
    writer.pragma("journal_mode", "wal")
    writer.execute("CREATE TABLE events (payload)")
    writer.executemany("INSERT INTO events VALUES (zeroblob(3000))", [()] * 2000)
    source = writer if own else apsw.Connection(str(path))
    backup = apsw.Connection(":memory:").backup("main", source, "main")
    for step in range(1, STEPS + 1):
        backup.step(256)
        if backup.done:
            return f"done after {step} steps"
        writer.execute("INSERT INTO events VALUES (1)")
    return f"not done after {STEPS} steps, {backup.remaining} of {backup.page_count} pages to go"


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        print("a connection of its own:", copy(Path(folder) / "1.db", own=False))
        print("the writer's connection:", copy(Path(folder) / "2.db", own=True))
