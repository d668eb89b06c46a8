"""The fuzz on signatures, and the samples of the SDKs on npm made again."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from support.sources.every_sample import SAMPLES, SIGNABLE
from support.sources.from_npm import NPM
from support.sources.fuzz import fuzz
from support.sources.receiver import fuzz_over_http, receiving

pytestmark = pytest.mark.chaos
CASES = 200_000


# F46
@pytest.mark.timeout(600)
def test_100_000_random_changes_are_refused_with_401() -> None:
    seed = random.randrange(1 << 32)
    counts = fuzz(SAMPLES, CASES, seed)
    print(f"seed {seed}: {counts}")
    assert sum(count for result, count in counts.items() if result != "accepted") >= 100_000


# F46
@pytest.mark.timeout(600)
def test_20_000_deliveries_over_http_are_refused_or_genuine(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    with receiving(tmp_path, SIGNABLE) as server:
        statuses = fuzz_over_http(server, SIGNABLE, 20_000, seed)
        print(f"seed {seed}: {statuses}")
        assert set(statuses) == {200, 202, 401}
        assert "Traceback" not in server.log


@pytest.mark.timeout(300)
def test_the_sdks_on_npm_sign_as_recorded(tmp_path: Path) -> None:
    """Needs node, npm and the network."""
    for name in ("package.json", "sign.mjs"):
        shutil.copy(NPM / name, tmp_path)
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(install, cwd=tmp_path, check=True)
    signed = subprocess.run(["node", "sign.mjs"], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads(signed.stdout) == json.loads((NPM / "signed.json").read_text())
