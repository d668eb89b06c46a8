"""Several instances of one app on one PostgreSQL database, each a process of its own."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.databases.postgres import TESTS_PATH, PostgresServer
from support.http.wire import Disconnected, Response
from support.servers.app_server import OPEN, AppServer
from support.servers.server import tracebacks_of_ackbox
from support.time.polling import eventually

Settings = Mapping[str, str]

_READY_WITHIN = 60.0  # ten Pythons that start at once on two cores


class Instance(AppServer):
    """An instance whose port is known before it listens."""

    def __init__(self, folder: Path, app: str, url: str, settings: Settings) -> None:
        super().__init__(folder, app, {"DATABASE_URL": url, **settings})
        self.port = int(self.environment["PORT"])

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log
        response = self.try_get("/ready")
        return response is not None and response.status == 200

    def try_get(self, path: str) -> Response | None:
        with suppress(OSError, Disconnected):
            return self.get(path)
        return None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _advertised_port(self) -> int:
        return self.port


class Cluster:
    """Instances and their database server. Queries go to the server itself, not through a proxy."""

    def __init__(
        self,
        server: PostgresServer,
        name: str,
        instances: list[Instance],
        search_path: str = TESTS_PATH,
    ) -> None:
        self.server = server
        self.search_path = search_path
        self.name = name
        self.instances = instances

    @property
    def ports(self) -> list[int]:
        return [instance.port for instance in self.instances]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows as decoded JSON, in which times and ids are text."""
        wrapped = f"SELECT coalesce(json_agg(result), '[]') FROM ({sql}) AS result"
        rows = self.server.execute(wrapped, self.name, search_path=self.search_path)
        return [tuple(row.values()) for row in json.loads(rows)]

    def wait_until_idle(self, *, within: float = 30.0) -> None:
        eventually(lambda: self.query(OPEN) == [(0,)], within=within, every=0.1)

    def terminate_backends(self) -> None:
        """Terminate every connection of the instances at once."""
        self.server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{self.name}' AND pid <> pg_backend_pid()"
        )

    def assert_alive(self) -> None:
        for instance in self.instances:
            assert instance.process.poll() is None, instance.log
            assert not tracebacks_of_ackbox(instance.log), instance.log


@contextmanager
def clustered(
    server: PostgresServer,
    folder: Path,
    app: str,
    settings: Settings | None = None,
    *,
    count: int = 3,
    port: int = 0,
    first: Settings | None = None,
) -> Iterator[Cluster]:
    """Start instances on a new database, and wait until all are ready. They are ended at the end,
    and none may have died or logged a traceback. With `port` they connect to a proxy there; `first`
    are additional settings of the first instance.
    """
    url = server.create_database()
    used = url.replace(f":{server.port}/", f":{port or server.port}/")
    instances = [
        Instance(
            folder / str(number), app, used, {**(settings or {}), **((not number and first) or {})}
        )
        for number in range(count)
    ]
    cluster = Cluster(server, url.rpartition("/")[2], instances)
    try:
        for instance in instances:
            instance.wait_until_ready(within=_READY_WITHIN)
        yield cluster
        cluster.assert_alive()
    finally:
        for instance in instances:
            instance.kill()
