"""Ledgers of released versions, kept as files in `tests/released`: every later version opens them.

Make those of the version at hand, once, with
`PYTHONPATH=tests python -m support.ledgers.released_ledgers`.
"""

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from ackbox import __version__
from ackbox.app.promotion import promote_ledger
from ackbox.config import Settings
from support.databases.guarded import clean_environment
from support.databases.postgres import PostgresServer, find_installs, running_postgres
from support.ledgers.promoting import Everything

FOLDER = Path(__file__).parents[2] / "released"


def sqlite_file(version: str) -> Path:
    return FOLDER / f"ledger-{version}.db"


def postgres_dump(version: str) -> Path:
    return FOLDER / f"ledger-{version}.postgres.sql"


def restore(server: PostgresServer, dump: Path, url: str) -> None:
    subprocess.run(
        [server.bin / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", url, "-f", dump],
        check=True,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
    )


def _make(version: str) -> None:
    """Fill a SQLite ledger, promote it, and dump the database with the oldest server there is."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        ledger = Path("ackbox.db")
        Everything().make(ledger)
        with running_postgres(find_installs()[0]) as server:
            url = server.create_database()
            asyncio.run(promote_ledger(Settings(), ledger, url, lambda *_: None))
            subprocess.run(
                [server.bin / "pg_dump", "--no-owner", "--file", postgres_dump(version), url],
                check=True,
                env=clean_environment(),
            )
        shutil.copy(ledger, sqlite_file(version))


if __name__ == "__main__":
    _make(".".join(__version__.split(".")[:2]))
