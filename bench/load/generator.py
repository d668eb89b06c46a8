"""Starts a load generator and waits for its report: wrk when present, else our own."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import traffic
from bench.failure import BenchFailed
from bench.load.report import LoadReport, parse
from bench.server import clean_environment

SCRIPT = Path(__file__).with_name("wrk.lua")
START_UP_ALLOWANCE = 30


@dataclass(frozen=True)
class Load:
    """How hard to push: `lines` > 0 means the batch route with that many events per request, and
    `rate` > 0 so many events a second, whatever the server does. `signed` means deliveries to a
    source, signed as Stripe signs them."""

    connections: int
    seconds: float
    lines: int = 0
    rate: float = 0.0
    generator: str = "auto"
    signed: bool = False


def resolve(generator: str) -> str:
    if generator == "auto":
        return "wrk" if shutil.which("wrk") else "python"
    return generator


def run(load: Load, port: int) -> LoadReport:
    run_id = secrets.token_hex(traffic.RUN_ID_LENGTH // 2)
    limit = load.seconds + START_UP_ALLOWANCE
    if load.rate:
        return parse(_output(_steady(load, port, run_id), limit))
    if not load.lines and resolve(load.generator) == "wrk":
        # wrk cuts its connections at the end, whatever is under way on them.
        output = _output(_wrk(load, port, run_id), limit)
        return parse(output, run=run_id, in_flight=load.connections)
    return parse(_output(_python(load, port, run_id), limit))


def _output(command: Sequence[str], limit: float) -> str:
    environment = clean_environment({})
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"the load generator did not end within {limit:.0f} s") from None
    except subprocess.CalledProcessError as failure:
        raise BenchFailed(f"the load generator failed: {failure.stderr.strip()}") from None
    return done.stdout


def _wrk(load: Load, port: int, run_id: str) -> list[str]:
    # One thread: it carries far more than any server here, and leaves the other cores to them.
    return [
        *("wrk", "--threads", "1", "--connections", str(load.connections)),
        *("--duration", f"{max(1, round(load.seconds))}s", "--timeout", "10s"),
        *("--script", str(SCRIPT), f"http://127.0.0.1:{port}/webhooks", "--"),
        *(run_id, traffic.BODY_HEAD, traffic.BODY_TAIL, str(traffic.SPREAD)),
    ]


def _python(load: Load, port: int, run_id: str) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.load.sockets", str(port), "--run", run_id),
        *("--connections", str(load.connections), "--seconds", str(load.seconds)),
        *("--lines", str(load.lines)),
        *(["--signed"] if load.signed else []),
    ]


def _steady(load: Load, port: int, run_id: str) -> list[str]:
    return [
        *(sys.executable, "-m", "bench.load.steady", str(port), "--run", run_id),
        *("--connections", str(load.connections), "--seconds", str(load.seconds)),
        *("--rate", str(load.rate)),
    ]
