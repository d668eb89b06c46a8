"""Open and close the ledger inside the process that serves it, then post, kill -9 and compare."""

from pathlib import Path

from support.embedded import WITHOUT_CHECK, WITHOUT_HOOK, embedded


def assert_foreign_closes_lose_nothing(folder: Path, rounds: int) -> None:
    """Check that no acknowledged event is lost while only the shared locks protect the log."""
    acked: set[str] = set()
    with embedded(folder, without=(WITHOUT_HOOK, WITHOUT_CHECK)) as app:
        for number in range(rounds):
            log = app.wal.stat().st_ino
            for way in ("sqlite3", "attach", "sqlalchemy", "aiosqlite", "open"):
                read = app.open_read_and_close(way)
                assert read.isdigit(), read
                key = f"{number}-{way}"
                assert app.post(key) == 202, app.log
                acked.add(key)
                assert app.wal.stat().st_ino == log
            app.kill()
            assert app.keys() == acked
            app.start()
