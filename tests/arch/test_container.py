"""The image, checked without a container engine: its wheels, its files, its environment. W17."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackbox.config.loader import resolve

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

INSTRUCTION = re.compile(r"^([A-Z]+) +(.+)$", re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return INSTRUCTION.findall(text)


def arguments(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def image_environment() -> dict[str, str]:
    words = " ".join(arguments("ENV")).split()
    return dict(word.split("=", 1) for word in words)


# W17
def test_the_image_is_alpine_with_port_user_and_volume() -> None:
    assert {rest.split()[0] for rest in arguments("FROM")} == {"python:3.14-alpine"}
    assert arguments("EXPOSE") == ["8000"]
    assert arguments("USER") == ["appuser"]
    assert arguments("VOLUME") == ["/data"]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    assert "/health" in arguments("HEALTHCHECK")[0]
    assert [json.loads(rest) for rest in arguments("ENTRYPOINT")] == [["ackbox"]]
    assert [json.loads(rest) for rest in arguments("CMD")] == [["serve"]]


# W17
def test_the_image_keeps_its_database_on_the_volume_and_listens_to_all() -> None:
    expected = {
        "DB_PATH": "/data/events.db",
        "HOST": "0.0.0.0",
        "PORT": "8000",
        "LOG_FORMAT": "json",
    }
    assert expected.items() <= image_environment().items()


# N3: the image's own defaults are no names of another application.
def test_no_command_in_the_image_warns_of_the_variables_of_the_image(tmp_path: Path) -> None:
    for given in ({}, {"ACKBOX_PORT": "9000", "ACKBOX_DB_PATH": "/data/copy.db"}):
        resolved = resolve({**image_environment(), **given}, directory=tmp_path)
        assert resolved.warn_of_variables() == []


# W17
@pytest.mark.parametrize(
    ("port", "requested"),
    [(None, "8000"), ("9000", "9000"), ("tcp://10.0.0.1:80", "8000"), ("", "8000")],
)
def test_the_health_check_requests_the_port_that_the_server_listens_on(
    port: str | None, requested: str, tmp_path: Path
) -> None:
    wget = tmp_path / "wget"
    wget.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wget.chmod(0o755)
    _, _, command = arguments("HEALTHCHECK")[0].partition(" CMD ")
    given = {} if port is None else {"ACKBOX_PORT": port}
    environment = {**image_environment(), "PATH": f"{tmp_path}:{os.defpath}", **given}
    done = subprocess.run(
        json.loads(command), env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == f"http://127.0.0.1:{requested}/health"


# W17
def test_the_dockerfile_passes_hadolint() -> None:
    done = run(str(BIN / "hadolint"), "--no-color", "Dockerfile")
    assert done.returncode == 0, done.stdout


# W17
def test_compose_keeps_the_volume_and_waits_longer_than_the_drain() -> None:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = compose["services"]["ackbox"]
    name, folder = service["volumes"][0].split(":")
    assert (name in compose["volumes"], folder) == (True, "/data")
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["restart"] == "unless-stopped"
    assert int(service["stop_grace_period"].removesuffix("s")) > 20  # SHUTDOWN_GRACE
    assert {"API_TOKEN", "INGEST_TOKEN"} <= set(service["environment"])


# W17
def test_what_the_image_copies_gets_past_the_docker_ignore_file() -> None:
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    copies = [rest.split()[:-1] for rest in arguments("COPY") if "--from" not in rest]
    assert [path for paths in copies for path in paths if f"!{path}" not in kept] == []


# W17: nothing is compiled in the image, so each locked requirement needs a wheel for it.
@pytest.mark.timeout(300)  # it downloads them, once
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_locked_requirement_has_a_musl_wheel(machine: str, tmp_path: Path) -> None:
    done = install_wheels(machine, tmp_path)
    assert done.returncode == 0, done.stderr
    compiled = [path.name for path in tmp_path.rglob("*.cpython-*.so")]
    assert compiled
    assert all(f"cpython-314-{machine}-linux-musl" in name for name in compiled)


# W17: the image grows to many instances without being made anew.
def test_the_image_has_the_drivers_and_else_what_a_checkout_has() -> None:
    locked = {name: pins(name) for name in ("run", "image")}
    assert locked["run"].items() <= locked["image"].items()
    assert {"asyncpg", "redis", "hiredis"} <= locked["image"].keys()


def pins(name: str) -> dict[str, str]:
    text = (ROOT / f"requirements/{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def install_wheels(machine: str, target: Path) -> subprocess.CompletedProcess[str]:
    """Install as make does: by uv if it works, otherwise by pip."""
    wheels_only = [
        *("install", "--quiet", "--only-binary", ":all:", "--require-hashes", "--no-deps"),
        *("--target", str(target), "--python-version", "3.14", "-r", "requirements/image.txt"),
    ]
    if uv := shutil.which("uv", path=BIN):
        platform = f"{machine}-unknown-linux-musl"
        done = run(uv, "pip", *wheels_only, "--python-platform", platform)
        if done.returncode == 0:
            return done
    # pip takes each tag literally, where uv knows that 1_2 runs what was built for 1_1.
    tags = [f"--platform=musllinux_1_{minor}_{machine}" for minor in (1, 2)]
    return run(sys.executable, "-m", "pip", *wheels_only, *tags)


# W17
def test_the_entry_point_serves_with_the_image_environment(tmp_path: Path) -> None:
    port = free_port()
    database = tmp_path / "events.db"
    environment = image_environment() | {
        "PATH": os.defpath,
        "DB_PATH": str(database),
        "PORT": str(port),
    }
    with serving(environment, tmp_path) as server:
        assert status_of_health(server, port) == 200, log_of(tmp_path)
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0, log_of(tmp_path)
    assert database.is_file()


@contextmanager
def serving(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    entry = [*json.loads(arguments("ENTRYPOINT")[0]), *json.loads(arguments("CMD")[0])]
    command = [str(BIN / entry[0]), *entry[1:]]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log) as server,
    ):
        try:
            yield server
        finally:
            server.kill()


def status_of_health(server: subprocess.Popen[bytes], port: int) -> int | None:
    """Request /health until the server listens; return None if the server ends before that."""
    while not ended_within(server, seconds=0.1):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except ConnectionRefusedError:
            continue
        finally:
            connection.close()
    return None


def ended_within(server: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        server.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
