"""The server that the tests of one pytest worker share, unless a test needs its own."""

from collections.abc import Iterator

import pytest

from support.http.posting import posted
from support.http.wire import Wire, request
from support.servers.server import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"QUEUE_MAXSIZE": "1000000000", "LOG_LEVEL": "DEBUG"}
    with running(tmp_path_factory.mktemp("server"), settings) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def _server_stays_healthy(server: Server) -> Iterator[None]:
    """After every module the server is ready and has logged neither an error nor a traceback."""
    start = len(server.log)
    yield
    assert server.is_ready()
    written = server.log[start:]
    assert "Traceback" not in written
    assert '"level":"error"' not in written
    assert '"level":"critical"' not in written


@pytest.fixture
def neighbour(server: Server) -> Iterator[None]:
    """Another client stays connected during the test, and is served before and after it."""
    with Wire(server.port) as wire:
        assert wire.send(request()).read().status == 200
        yield
        assert wire.send(request("POST", "/webhooks", posted())).read().status == 202
