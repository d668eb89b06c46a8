"""Code of the host that opens the ledger itself, inside the process that serves it."""

import subprocess
import sys
from pathlib import Path

from support.servers.embedded import (
    WITHOUT_HOOK,
    WITHOUT_LOCKS,
    assert_foreign_closes_lose_nothing,
    embedded,
)
from support.time.polling import eventually

_READ_ELSEWHERE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM events").fetchall()
connection.close()
"""


# N1, F53
def test_other_sqlite_libraries_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with embedded(tmp_path) as app:
        for way in ("sqlite3", "sqlalchemy", "aiosqlite"):
            refusal = app.open_read_and_close(way)
            assert f"ForeignConnection: {app.ledger} is the ledger of an inbox" in refusal
            assert "await inbox.read(...)" in refusal
            assert app.post(way) == 202
        app.kill()
        assert app.keys() == {"sqlite3", "sqlalchemy", "aiosqlite"}


# N1, F53
def test_a_foreign_close_cannot_delete_the_log(tmp_path: Path) -> None:
    assert_foreign_closes_lose_nothing(tmp_path, rounds=3)


# N1, F54
def test_with_the_check_alone_nothing_is_acknowledged_into_a_deleted_log(tmp_path: Path) -> None:
    with embedded(tmp_path, without=(WITHOUT_HOOK, WITHOUT_LOCKS)) as app:
        acked, statuses = set(), []
        for number in range(3):
            assert app.post(f"before-{number}") == 202
            log = app.wal.stat().st_ino
            assert app.open_read_and_close("sqlite3").isdigit()
            assert not app.wal.exists() or app.wal.stat().st_ino != log
            statuses.append(app.post(f"unknown-{number}"))
            if statuses[-1] == 202:  # the monitor noticed it and recovered first
                acked.add(f"unknown-{number}")
            eventually(lambda: app.get("/inbox/ready").status == 200)
            assert app.post(f"after-{number}") == 202
            acked |= {f"before-{number}", f"after-{number}"}
            app.kill()
            assert app.keys() >= acked
            app.start()
        assert 503 in statuses
        assert set(statuses) <= {202, 503}


# N1, F53
def test_a_plain_close_of_the_file_does_not_let_another_process_delete_the_log(
    tmp_path: Path,
) -> None:
    with embedded(tmp_path) as app:
        assert app.post("before") == 202
        log = app.wal.stat().st_ino
        assert app.open_read_and_close("open") == "0"
        subprocess.run([sys.executable, "-c", _READ_ELSEWHERE, str(app.ledger)], check=True)
        assert app.wal.stat().st_ino == log
        assert app.post("after") == 202
        app.kill()
        assert app.keys() == {"before", "after"}
