import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from support.databases.postgres import Install, PostgresServer, running_postgres
from support.databases.valkey import ValkeyServer, running_valkey


def pytest_xdist_auto_num_workers() -> int:
    """Use more workers than cores: many tests wait for processes that they started. With as many
    workers as cores, the two cores were busy for 78 % of the time."""
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2


def pytest_configure() -> None:
    """Restore SIGINT. A shell starts background jobs with SIGINT ignored, and the processes that
    tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_of() -> Iterator[Callable[[Install], PostgresServer]]:
    """The server of that version, started by the first test that asks for it, for all in this
    process. Whoever kills servers starts one of its own."""
    with ExitStack() as servers:

        @cache
        def started(install: Install) -> PostgresServer:
            return servers.enter_context(running_postgres(install))

        yield started


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server
