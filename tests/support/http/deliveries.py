"""Deliveries as GitHub and Stripe sign them, and a server that receives them."""

import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.http.wire import Response, exchange, request
from support.servers.server import Server

GITHUB_KEY = "key-of-github"
STRIPE_KEY = "whsec_key_of_stripe"
TABLES = """
[sources.github]
preset = "github"
secret = "env:GITHUB_KEY"
headers = ["X-Extra"]

[sources.twin]
preset = "github"
secrets = ["env:STRIPE_KEY", "env:GITHUB_KEY"]

[sources.stripe]
preset = "stripe"
secret = "env:STRIPE_KEY"

[sources.anyone]
verify = "none"
key = "X-Key"
"""
OPEN_SOURCE = '[sources.anyone]\nverify = "none"\n'
KEYS = {"GITHUB_KEY": GITHUB_KEY, "STRIPE_KEY": STRIPE_KEY}


@contextmanager
def receiving(
    folder: Path, tables: str = TABLES, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server with these sources, and wait until it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ackbox.toml").write_text(tables)
    server = Server(folder, {**KEYS, **(settings or {})})
    try:
        yield server.wait_until_ready()
    finally:
        if server.process.poll() is None:
            server.kill()


def deliver(
    server: Server, source: str, body: bytes, headers: Mapping[str, str], method: str = "POST"
) -> Response:
    return exchange(server.port, request(method, f"/in/{source}", body, dict(headers)))


def signed_by_github(
    body: bytes, delivery: str, *, key: str = GITHUB_KEY, event: str = "push"
) -> dict[str, str]:
    signature = hmac.new(key.encode(), body, "sha256").hexdigest()
    return {
        "Content-Type": "application/json",
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": event,
        "X-Hub-Signature-256": f"sha256={signature}",
    }


def stripe_event(event_id: str) -> bytes:
    return json.dumps({"id": event_id, "type": "invoice.paid", "created": 1_700_000_000}).encode()


def signed_by_stripe(body: bytes, *, key: str = STRIPE_KEY) -> dict[str, str]:
    moment = str(int(datetime.now(UTC).timestamp()))
    signed = moment.encode() + b"." + body
    signature = hmac.new(key.encode(), signed, "sha256").hexdigest()
    return {"Content-Type": "application/json", "Stripe-Signature": f"t={moment},v1={signature}"}


def receipt(response: Response) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(response.body)
    return parsed
