"""The OpenAPI document is correct: schemathesis, with all of its checks, finds no difference."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from support.http.posting import posted
from support.http.wire import exchange, request
from support.servers.server import TESTS, Server, running

TOKEN = "the-same-for-both-here"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("guarded", [False, True], ids=["open", "guarded"])
def test_the_server_does_what_its_schema_says(tmp_path: Path, guarded: bool) -> None:
    tokens = {"INGEST_TOKEN": TOKEN, "API_TOKEN": TOKEN} if guarded else {}
    settings = {"LOG_LEVEL": "ERROR", "QUEUE_MAXSIZE": "1000000", **tokens}
    with running(tmp_path, settings) as server:
        result = schemathesis(server, *(["--phases", "coverage"] if guarded else []))

        assert result.returncode == 0, result.stdout[-5000:] + result.stderr
        assert "No issues found" in result.stdout, result.stdout[-3000:]
        assert server.records() == []


def test_the_document_lists_every_route_and_nothing_else(server: Server) -> None:
    document = server.get("/openapi.json").json()

    assert {
        (path, method) for path, methods in document["paths"].items() for method in methods
    } == {
        ("/webhooks", "post"),
        ("/webhooks", "get"),
        ("/webhooks/batch", "post"),
        ("/webhooks/{event_id}", "get"),
        ("/in/{source}", "post"),
        ("/in/{source}", "get"),
        ("/health", "get"),
        ("/ready", "get"),
        ("/metrics", "get"),
        ("/api/backup", "post"),
        ("/api/events", "get"),
        ("/api/events/{event_id}", "get"),
        ("/api/events/{event_id}/payload", "get"),
        ("/api/events/{event_id}/replay", "post"),
        ("/api/events/replay", "post"),
        ("/api/events/{event_id}/discard", "post"),
        ("/api/events/discard", "post"),
        ("/api/quarantine", "get"),
        ("/api/quarantine/{quarantine_id}", "get"),
        ("/api/quarantine/{quarantine_id}/body", "get"),
        ("/api/quarantine/release", "post"),
        ("/api/quarantine/{quarantine_id}/release", "post"),
        ("/api/quarantine/drop", "post"),
        ("/api/quarantine/{quarantine_id}/drop", "post"),
        ("/api/stats", "get"),
        ("/api/audit", "get"),
    }
    del document["paths"]["/in/{source}"]  # this server declares no source
    for path, methods in document["paths"].items():
        for method in methods:
            named = path.replace("{event_id}", "x").replace("{quarantine_id}", "x")
            data = request(method.upper(), named, b"", server.operator)
            assert exchange(server.port, data).status not in (404, 405)


def test_an_event_as_documented_is_accepted(server: Server) -> None:
    schema = server.get("/openapi.json").json()["components"]["schemas"]["PostedEvent"]
    fields = {
        "event_type": "t",
        "lane": "l",
        "source_sequence": schema["properties"]["source_sequence"]["maximum"],
        "source_emitted_at": "2026-01-31T12:00:00Z",
    }

    assert set(schema["properties"]) == {*fields, "idempotency_key", "payload"}
    assert server.post(posted(None, {}, **fields)).status == 202


def test_a_batch_and_its_response_are_described_line_by_line(server: Server) -> None:  # C9
    document = server.get("/openapi.json").json()
    operation = document["paths"]["/webhooks/batch"]["post"]
    good, bad = posted(), b"x"

    response = exchange(server.port, request("POST", "/webhooks/batch", good + b"\n" + bad))

    assert_line(document, operation["requestBody"], good)
    for line in response.body.splitlines():
        assert_line(document, operation["responses"]["200"], line)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("action", ["replay", "discard"])
def test_acting_by_filter_has_one_media_type_and_each_line_is_described(
    server: Server, action: str, dry_run: bool
) -> None:  # C9
    document = server.get("/openapi.json").json()
    path = f"/api/events/{action}"
    body = json.dumps({"lane": "an empty lane", "dry_run": dry_run}).encode()
    described = document["paths"][path]["post"]["responses"]["200"]

    headers = {"Content-Type": "application/json", **server.operator}
    response = exchange(server.port, request("POST", path, body, headers))

    assert [*described["content"]] == [response.headers["content-type"]] == ["application/x-ndjson"]
    assert response.body.endswith(b"\n")
    for line in response.body.splitlines():
        assert_line(document, described, line)


@pytest.mark.parametrize(
    ("status", "never"),
    [("401", {"/health", "/ready"}), ("403", {"/health", "/ready", "/webhooks/{event_id}"})],
)
def test_only_routes_that_need_a_token_list_401_and_403(
    server: Server, status: str, never: set[str]
) -> None:  # C9
    paths = server.get("/openapi.json").json()["paths"]

    without = {
        path
        for path, operations in paths.items()
        for operation in operations.values()
        if status not in operation["responses"]
    }

    assert without == never


def assert_line(document: dict[str, Any], described: dict[str, Any], line: bytes) -> None:
    """Check that the body is described as text, and that the line matches a described schema."""
    ndjson = described["content"]["application/x-ndjson"]
    assert ndjson["schema"]["type"] == "string"
    schema = {**ndjson["x-line-schema"], "components": document["components"]}
    jsonschema_rs.validator_for(schema).validate(json.loads(line))


def schemathesis(server: Server, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run schemathesis on all routes except the backup, which writes files: see `test_backups`."""
    hooks = {"PYTHONPATH": str(TESTS), "SCHEMATHESIS_HOOKS": "support.http.schemathesis_hooks"}
    return subprocess.run(
        [Path(sys.executable).with_name("schemathesis"), "run",
         f"http://127.0.0.1:{server.port}/openapi.json", "--checks", "all", "--exclude-path",
         "/api/backup", "--max-examples", "12", "--seed", "1", "--no-color",
         "--header", f"Authorization: Bearer {server.token}", *options],
        cwd=server.folder,
        env={**os.environ, **hooks},
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )  # fmt: skip
