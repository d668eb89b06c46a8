"""`GET /metrics`: well-formed, with our prefix, and bounded whatever is sent (W15, F43)."""

import random
import re
import string
from pathlib import Path
from typing import Any
from uuid import uuid4

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ackbox.http.problems import STATUSES
from ackbox.telemetry import REFUSAL_REASONS
from support.http.posting import new_key, posted
from support.http.wire import Wire, request
from support.servers.app_server import serving
from support.servers.server import Server, read_ledger, running
from support.time.polling import eventually

DOCS = Path(__file__).parents[2] / "docs"
Series = tuple[str, frozenset[tuple[str, str]]]

METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "SUBSCRIBE", "LINK"]


def test_metrics_are_well_formed_and_have_our_prefix(server: Server) -> None:  # W15
    response = server.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.body.decode()))
    assert len(families) > 10
    assert all(sample.name.startswith("ackbox_") for f in families for sample in f.samples)
    assert all(family.documentation for family in families)


def test_metrics_show_depth_rate_latency_and_errors(server: Server) -> None:  # W15, L5, L12, P9
    server.post(posted())
    names = {family.name for family in families_of(server)}

    assert names >= {
        "ackbox_queue_depth",
        "ackbox_events_received",
        "ackbox_accept_seconds",
        "ackbox_events_refused",
        "ackbox_http_responses",
        "ackbox_oldest_pending_seconds",
        "ackbox_start_pending_events",
        "ackbox_start_dead_letters",
        "ackbox_start_oldest_pending_seconds",
    }


def test_each_response_and_each_receipt_is_counted(server: Server) -> None:
    series = {
        'ackbox_http_responses_total{route="/webhooks",status="202"}': 2,
        'ackbox_http_responses_total{route="/webhooks",status="200"}': 2,
        'ackbox_http_responses_total{route="/webhooks",status="400"}': 1,
        'ackbox_http_responses_total{route="/webhooks/batch",status="200"}': 1,
        'ackbox_http_responses_total{route="other",status="404"}': 1,
        'ackbox_http_responses_total{route="other",status="414"}': 1,
        'ackbox_events_received_total{receipt="new",source="webhooks"}': 3,
        'ackbox_events_received_total{receipt="duplicate",source="webhooks"}': 1,
        'ackbox_events_received_total{receipt="conflict",source="webhooks"}': 1,
        "ackbox_accept_seconds_count": 5,
    }
    before = {name: server.metric(name) for name in series}

    key = new_key()
    for body in (posted(key, 1), posted(key, 1), posted(key, 2), posted(), b"{"):
        server.post(body)
    with Wire(server.port) as wire:
        wire.send(request("POST", "/webhooks/batch", posted())).read()
        wire.send(request("GET", "/nothing", headers=server.operator)).read()
        wire.send(request("GET", "/" + "x" * 9000)).read()

    assert {name: server.metric(name) - before[name] for name in series} == series


def test_metrics_show_the_depth_and_age_of_the_queue(server: Server) -> None:  # L5
    server.post(posted())
    ((pending,),) = read_ledger(server.ledger, "SELECT count(*) FROM events")

    eventually(lambda: server.metric("ackbox_queue_depth") == pending)
    first = server.metric("ackbox_oldest_pending_seconds")
    assert server.metric("ackbox_oldest_pending_seconds") > first > 0


def test_no_request_adds_a_series(server: Server) -> None:  # F43
    before = series_of(server)

    flood(server, random.Random(43), 4_000)

    assert series_of(server) == before
    assert len(before) < 600


def test_the_first_occurrence_is_an_increase(tmp_path: Path) -> None:  # C3, F60
    with running(tmp_path, {"QUEUE_MAXSIZE": "2", "PORT": "0"}) as server:
        before = values_of(server)
        server.post(posted("a", 1))
        assert server.post(posted("a", 2)).headers["ackbox-conflict"] == "true"
        server.post(posted("b"))
        assert server.post(posted("c")).status == 429
        assert server.get("/nothing").status == 404
        after = values_of(server)

    first = {
        ("ackbox_events_received_total", ("receipt", "conflict"), ("source", "webhooks")),
        ("ackbox_events_refused_total", ("reason", "queue")),
        ("ackbox_http_responses_total", ("route", "/webhooks"), ("status", "429")),
        ("ackbox_http_responses_total", ("route", "other"), ("status", "404")),
    }
    assert {(before[series], after[series]) for series in first} == {(0.0, 1.0)}
    assert after.keys() == before.keys()


HANDLED = """
from ackbox import Inbox

inbox = Inbox()

@inbox.on("order.*")
@inbox.on("invoice.*")
async def pay(event):
    raise ValueError("no")
"""


def test_runs_are_counted_by_handler(tmp_path: Path) -> None:  # N9
    with serving(tmp_path, HANDLED, {"MAX_ATTEMPTS": "1"}) as server:
        before = values_of(server)
        server.post(posted(event_type="order.paid"))
        server.post(posted(event_type="invoice.paid"))
        server.post(posted(event_type="other"))
        server.wait_until_idle()
        dead = 'ackbox_runs_total{handler="app.pay",outcome="dead_letter"}'
        eventually(lambda: server.metric(dead) == 2)
        assert server.metric('ackbox_run_seconds_count{handler="app.pay"}') == 2
        after = values_of(server)
    assert after.keys() == before.keys()


def test_every_series_of_a_documented_alert_exists_from_the_start(tmp_path: Path) -> None:  # F60
    alerts = (DOCS / "how-to" / "monitor.md").read_text().partition("## Alert")[2]
    selectors = set(re.findall(r"(ackbox_[a-z_]+)(?:\{(\w+)=\"(\w+)\"\})?", alerts))
    with serving(tmp_path, HANDLED) as server:
        existing = values_of(server)

    for name, label, value in selectors - {("ackbox_", "", "")}:
        matching = [s for s in existing if s[0] == name and (not label or (label, value) in s)]
        assert matching, (name, label, value)


def test_every_status_of_ours_is_counted_from_the_start() -> None:  # C3
    """Every status that appears in the code of the HTTP layer has a counter from the start."""
    pattern = r"(?:HttpError|HTTPException|Refusal|_refuse|_problem|Response)\(\s*(\d{3})\b"
    http = (DOCS.parent / "src" / "ackbox" / "http").glob("*.py")
    statuses = {int(code) for path in http for code in re.findall(pattern, path.read_text())}
    assert len(statuses) > 5
    assert statuses <= STATUSES


def test_every_reason_of_a_refusal_is_counted_from_the_start() -> None:  # C3
    sources = (DOCS.parent / "src" / "ackbox").rglob("*.py")
    pattern = r"(?:Refused|_overloaded|_note_refusal)\(\"(\w+)\""
    reasons = {reason for path in sources for reason in re.findall(pattern, path.read_text())}
    assert reasons == REFUSAL_REASONS


def values_of(server: Server) -> dict[tuple[Any, ...], float]:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families_of(server)
        for sample in family.samples
    }


def flood(server: Server, chance: random.Random, requests: int) -> None:
    """Send requests with random paths, methods, types, keys, lanes, sources, headers and ids."""
    with Wire(server.port, timeout=30) as wire:
        for _ in range(requests // 50):
            wire.send(b"".join(any_request(chance) for _ in range(50)))
            for _ in range(50):
                wire.read()


def any_request(chance: random.Random) -> bytes:
    path = chance.choice([
        f"/{word(chance)}", f"/webhooks/{word(chance)}", f"/webhooks/{uuid4()}",
        f"/webhooks?idempotency_key={word(chance)}&source={word(chance)}", f"/in/{word(chance)}",
        f"/api/{word(chance)}", f"/metrics/{word(chance)}", "/webhooks", "/webhooks/batch",
    ])  # fmt: skip
    method = "POST" if path.startswith("/webhooks") and len(path) < 16 else chance.choice(METHODS)
    body = posted(word(chance), event_type=word(chance), lane=word(chance))
    headers = {"X-Request-ID": word(chance), "User-Agent": word(chance), f"X-{word(chance)}": "1"}
    return request(method, path, body, headers)


def word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_letters, k=12))


def series_of(server: Server) -> set[Series]:
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in families_of(server)
        for sample in family.samples
    }


def families_of(server: Server) -> list[Metric]:
    return list(text_string_to_metric_families(server.get("/metrics").body.decode()))
