"""The load generator that keeps to a rate whatever the server does: open loop.

`python -m bench.load.steady PORT` prints a LoadReport as JSON. Latencies count from the moment a
request was due, so that a server that falls behind cannot hide it.
"""

import argparse
import asyncio
import itertools
import time
from collections.abc import Iterator

import uvloop

from bench import traffic
from bench.load.connection import LoadCounts
from bench.load.report import LoadReport, dump
from bench.load.sockets import judge_webhook, summarise, webhooks

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Pool = asyncio.LifoQueue[Stream]


def main() -> None:
    options = _parse()
    print(dump(uvloop.run(_load(options))))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.load.steady")
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, default=500.0, help="events a second")
    parser.add_argument("--connections", type=int, default=64, help="at most so many at once")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--run", required=True, help="prefix that makes this load's keys unique")
    return parser.parse_args()


async def _load(options: argparse.Namespace) -> LoadReport:
    counts, pool = LoadCounts(), Pool()
    for _ in range(options.connections):
        pool.put_nowait(await asyncio.open_connection("127.0.0.1", options.port))
    count = round(options.rate * options.seconds)
    requests = itertools.islice(webhooks(traffic.keys(options.run), options.port), count)
    started = time.perf_counter()
    await _send_at(options.rate, requests, pool, counts)
    return summarise(counts, time.perf_counter() - started, options.run)


async def _send_at(rate: float, requests: Iterator[bytes], pool: Pool, counts: LoadCounts) -> None:
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            due = started + number / rate
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            group.create_task(_send(request, due, pool, counts))


async def _send(request: bytes, due: float, pool: Pool, counts: LoadCounts) -> None:
    reader, writer = stream = await pool.get()
    writer.write(request)
    status = await _read_response(reader)
    acked, refused = judge_webhook(status, b"")
    counts.add_response(acked, refused, time.perf_counter() - due)
    pool.put_nowait(stream)


async def _read_response(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


if __name__ == "__main__":
    main()
