"""The load generator for machines without wrk, and for the batch route.

`python -m bench.load.sockets PORT` prints a LoadReport as JSON.
"""

import argparse
import asyncio
import hmac
import itertools
import time
from collections.abc import Iterator

import uvloop

from bench import traffic
from bench.load.connection import Connection, Judge, LoadCounts
from bench.load.report import LoadReport, dump, percentile_ms

ACCEPTED_LINE = b'"http_status":202'


def main() -> None:
    options = _parse()
    print(dump(uvloop.run(_load(options))))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.load.sockets")
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--run", required=True, help="prefix that makes this load's keys unique")
    parser.add_argument("--lines", type=int, default=0, help="events per request; 0 = one webhook")
    parser.add_argument("--signed", action="store_true", help="deliver to the source `stripe`")
    return parser.parse_args()


async def _load(options: argparse.Namespace) -> LoadReport:
    counts = LoadCounts()
    loop = asyncio.get_running_loop()
    requests, judge = _workload(options)
    started = time.perf_counter()
    for _ in range(options.connections):
        await loop.create_connection(
            lambda: Connection(requests, judge, counts), "127.0.0.1", options.port
        )
    await asyncio.sleep(started + options.seconds - time.perf_counter())
    counts.running = False
    await counts.drained.wait()
    return summarise(counts, time.perf_counter() - started, options.run)


def _workload(options: argparse.Namespace) -> tuple[Iterator[bytes], Judge]:
    keys = traffic.keys(options.run)
    if options.lines:
        return _batches(keys, options.lines, options.port), _judge_batch(options.lines)
    requests = deliveries if options.signed else webhooks
    return requests(keys, options.port), judge_webhook


def webhooks(keys: Iterator[str], port: int) -> Iterator[bytes]:
    head = _head("/webhooks", "application/json", port)
    for key in keys:
        body = traffic.body(key)
        yield b"%s%d\r\n\r\n%s" % (head, len(body), body)


def deliveries(keys: Iterator[str], port: int) -> Iterator[bytes]:
    """Yield deliveries as Stripe signs them. The time of a signature is that of the start: the
    load ends long before the tolerance does."""
    head = _head("/in/stripe", "application/json", port)
    moment = b"%d" % time.time()
    key = traffic.STRIPE_SECRET.encode()
    for event_id in keys:
        body = traffic.stripe_event(event_id)
        signature = hmac.digest(key, b"%s.%s" % (moment, body), "sha256").hex().encode()
        header = b"Stripe-Signature: t=%s,v1=%s" % (moment, signature)
        yield b"%s%d\r\n%s\r\n\r\n%s" % (head, len(body), header, body)


def _batches(keys: Iterator[str], lines: int, port: int) -> Iterator[bytes]:
    head = _head("/webhooks/batch", "application/x-ndjson", port)
    while True:
        body = b"\n".join(map(traffic.body, itertools.islice(keys, lines))) + b"\n"
        yield b"%s%d\r\n\r\n%s" % (head, len(body), body)


def _head(path: str, content_type: str, port: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: "
    ).encode()


def judge_webhook(status: int, body: bytes) -> tuple[int, int]:
    return (1, 0) if 200 <= status < 300 else (0, 1)


def _judge_batch(lines: int) -> Judge:
    def judge(status: int, body: bytes) -> tuple[int, int]:
        accepted = body.count(ACCEPTED_LINE) if status == 200 else 0
        return accepted, lines - accepted

    return judge


def summarise(counts: LoadCounts, seconds: float, run: str) -> LoadReport:
    counts.latencies.sort()
    return LoadReport(
        requests=counts.requests,
        acked=counts.acked,
        errors=counts.errors,
        seconds=seconds,
        p50_ms=percentile_ms(counts.latencies, 0.50),
        p99_ms=percentile_ms(counts.latencies, 0.99),
        longest_ms=percentile_ms(counts.latencies, 1.0),
        in_flight=0,
        run=run,
    )


if __name__ == "__main__":
    main()
