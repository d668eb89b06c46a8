"""ADR 14: the cost of a timer for each request, and of a deadline that is swept."""
# ruff: noqa: T201

import asyncio
from statistics import median
from time import perf_counter

import uvloop

REQUESTS, CONNECTIONS = 100_000, 1000


class Connection:
    deadline = 0.0


def timers(loop: asyncio.AbstractEventLoop) -> float:
    started = perf_counter()
    for _ in range(REQUESTS):
        loop.call_later(75, int).cancel()
    return (perf_counter() - started) / REQUESTS


def deadlines(loop: asyncio.AbstractEventLoop) -> float:
    connection = Connection()
    started = perf_counter()
    for _ in range(REQUESTS):
        connection.deadline = loop.time() + 75
    return (perf_counter() - started) / REQUESTS


def sweep(loop: asyncio.AbstractEventLoop) -> float:
    connections = [Connection() for _ in range(CONNECTIONS)]
    started = perf_counter()
    now = loop.time()
    sum(connection.deadline > now for connection in connections)
    return perf_counter() - started


async def main() -> None:
    loop = asyncio.get_running_loop()
    print(f"a timer set and cancelled: {median(timers(loop) for _ in range(5)) * 1e9:.0f} ns")
    print(f"a deadline noted: {median(deadlines(loop) for _ in range(5)) * 1e9:.0f} ns")
    print(f"1000 connections swept: {median(sweep(loop) for _ in range(5)) * 1e6:.0f} us")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
