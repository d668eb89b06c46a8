"""A transaction-pooling proxy like PgBouncer. A client has a server connection for one transaction,
and then, if possible, gets another connection."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.faults.threaded_server import serving_in_thread

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_REQUESTS = b"QS"  # a query or a sync, to which the server responds with "ready"
_READY, _STATUS, _AUTHENTICATION, _KEY = b"Z", b"S", b"R", b"K"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PoolingProxy:
    """A proxy with `size` server connections, which lends the longest idle one first."""

    def __init__(self, target: int, database: str, size: int) -> None:
        self._target = target
        self.database = database
        self._size = size
        self._idle: asyncio.Queue[Streams] = asyncio.Queue()
        self._opened: list[asyncio.StreamWriter] = []
        self._greeting = b""
        self.port = 0
        self.lent = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                if await _is_startup(reader, writer):
                    await self._greet(writer)
                    while True:
                        await self._lend(reader, writer)
            finally:
                writer.transport.abort()

    def hang_up(self) -> None:
        for end in self._opened:
            end.transport.abort()

    async def _greet(self, writer: asyncio.StreamWriter) -> None:
        while len(self._opened) < self._size:
            self._idle.put_nowait(await self._connect())
        writer.write(self._greeting)

    async def _lend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lend a server connection to the client for one transaction."""
        message = await _message(reader)
        if message[:1] == b"X":
            raise ConnectionError("the client leaves")
        server = await self._idle.get()
        self.lent += 1
        try:
            await _converse(message, (reader, writer), server)
        except BaseException:  # the transaction may be open: no other client may get it
            self._opened.remove(server[1])
            server[1].transport.abort()
            raise
        self._idle.put_nowait(server)

    async def _connect(self) -> Streams:
        server = await asyncio.open_connection("127.0.0.1", self._target)
        self._opened.append(server[1])
        named = f"user\0postgres\0database\0{self.database}\0client_encoding\0UTF8\0\0".encode()
        server[1].write(struct.pack("!II", len(named) + 8, 196608) + named)
        greeting = b""
        while (message := await _message(server[0]))[:1] != _READY:
            assert message[:1] in (_AUTHENTICATION, _STATUS, _KEY), message
            greeting += message
        self._greeting = greeting + message
        return server


async def _converse(first: bytes, client: Streams, server: Streams) -> None:
    """Forward messages until every request has its response and no transaction is open."""
    server[1].write(first)
    owed = int(first[:1] in _REQUESTS)
    from_client = asyncio.ensure_future(_message(client[0]))
    from_server = asyncio.ensure_future(_message(server[0]))
    try:
        while True:
            await asyncio.wait([from_client, from_server], return_when=asyncio.FIRST_COMPLETED)
            if from_client.done():
                owed += from_client.result()[:1] in _REQUESTS
                server[1].write(from_client.result())
                from_client = asyncio.ensure_future(_message(client[0]))
            if from_server.done():
                response = from_server.result()
                owed -= response[:1] == _READY
                client[1].write(response)
                if owed == 0 and response == _READY + b"\0\0\0\x05I":
                    return
                from_server = asyncio.ensure_future(_message(server[0]))
    finally:
        from_client.cancel()
        from_server.cancel()
        await asyncio.gather(from_client, from_server, return_exceptions=True)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


async def _is_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    while True:
        (size,) = struct.unpack("!I", await reader.readexactly(4))
        (code,) = struct.unpack("!I", (await reader.readexactly(size - 4))[:4])
        if code not in (_SSL, _GSS):
            return bool(code != _CANCEL)
        writer.write(b"N")


@contextmanager
def pooled(target: int, database: str, *, size: int = 3) -> Iterator[PoolingProxy]:
    """Run a proxy in front of this database of a local server."""
    proxy = PoolingProxy(target, database, size)
    with serving_in_thread(proxy.accept) as server:
        proxy.port = server.port
        try:
            yield proxy
        finally:
            server.do(proxy.hang_up)
