"""Probes: anyone may ask, and operators get more details."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from pydantic import SecretStr

from ackbox.http.probes import Probes
from ackbox.runtime import Runtime

OPERATOR = [(b"authorization", b"Bearer operator")]
SERVICE = SimpleNamespace(
    name="ingest", state="running", failures=0, error=None, since=datetime(2026, 1, 31, tzinfo=UTC)
)


async def unused(*_: object) -> Any:
    raise AssertionError


async def probe(path: str, headers: list[tuple[bytes, bytes]], **runtime: Any) -> Any:
    """Return the status and the JSON of the response."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    about = SimpleNamespace(operator_token=SecretStr("operator"), **runtime)
    probes = Probes(cast("Runtime", about), unused)
    await probes({"path": path, "headers": headers}, unused, send)
    start, body = sent
    return start["status"], msgspec.json.decode(body["body"])


async def test_only_an_operator_reads_in_detail_why_the_server_is_not_ready() -> None:  # S24
    unready = SimpleNamespace(reason="The ledger is unavailable.", detail="10.0.0.5 is away.")
    status, shown = await probe("/ready", [], why_not_ready=lambda: unready)
    assert (status, shown["detail"]) == (503, unready.reason)
    status, shown = await probe("/ready", OPERATOR, why_not_ready=lambda: unready)
    assert (status, shown["detail"]) == (503, unready.detail)


async def test_only_an_operator_sees_the_services() -> None:
    current = SimpleNamespace(status="ok", durability="full")
    runtime = {"health": lambda: current, "services": SimpleNamespace(statuses=[SERVICE])}
    runtime["refusals"] = lambda: {"github": 3}
    status, shown = await probe("/health", [], **runtime)
    assert (status, shown) == (200, {"status": "ok", "durability": "full"})
    _, shown = await probe("/health", OPERATOR, **runtime)
    assert shown["services"] == [
        {
            "name": "ingest",
            "state": "running",
            "failures": 0,
            "since": "2026-01-31T00:00:00.000000Z",
        }
    ]
    assert shown["refusals"] == {"github": 3}
