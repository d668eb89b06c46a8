"""ADR 11: the cost of an event in the ingest buffer, by asyncio.Queue and by counters."""
# ruff: noqa: T201

import asyncio
from collections import deque
from statistics import median
from time import perf_counter

BATCH, BATCHES, LIMIT = 64, 1000, 5000


def by_queue() -> float:
    queue: asyncio.Queue[int] = asyncio.Queue(LIMIT)
    started = perf_counter()
    for _ in range(BATCHES):
        for event in range(BATCH):
            queue.put_nowait(event)
        for _ in range(BATCH):
            queue.get_nowait()
    return perf_counter() - started


def by_counters() -> float:
    parcels: deque[int] = deque()
    bell = asyncio.Event()
    admitted = 0
    started = perf_counter()
    for _ in range(BATCHES):
        for event in range(BATCH):
            if admitted + 1 > LIMIT:
                raise OverflowError
            admitted += 1
            parcels.append(event)
            bell.set()
        for _ in range(BATCH):
            parcels.popleft()
            admitted -= 1
        bell.clear()
    return perf_counter() - started


async def main() -> None:
    for name, measure in (("asyncio.Queue", by_queue), ("counters and a deque", by_counters)):
        seconds = median(measure() for _ in range(9))
        print(f"{name}: {seconds / BATCH / BATCHES * 1e9:.0f} ns an event")


if __name__ == "__main__":
    asyncio.run(main())
