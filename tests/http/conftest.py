"""One server for all tests of a worker that do not need one of their own."""

from collections.abc import Iterator

import pytest

from support.posting import posted
from support.server import Server, running
from support.wire import Wire, request


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"QUEUE_MAXSIZE": "1000000000", "LOG_LEVEL": "DEBUG"}
    with running(tmp_path_factory.mktemp("server"), settings) as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def _nothing_broke(server: Server) -> Iterator[None]:
    """Whatever a module sends, the server is well after it and logged neither error nor trace."""
    start = len(server.log)
    yield
    assert server.is_ready()
    written = server.log[start:]
    assert "Traceback" not in written
    assert '"level":"error"' not in written
    assert '"level":"critical"' not in written


@pytest.fixture
def neighbour(server: Server) -> Iterator[None]:
    """Somebody else is connected all the time, and is served before and after."""
    with Wire(server.port) as wire:
        assert wire.send(request()).read().status == 200
        yield
        assert wire.send(request("POST", "/webhooks", posted())).read().status == 202
