"""The pages on using, running and upgrading ackbox work for users who have only the package."""

import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from shutil import which
from zipfile import ZipFile

from ackbox.config import Settings
from docs.pages import PAGES, ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"
SYSTEMD = HOW_TO / "run-under-systemd.md"


# N8
def test_a_project_needs_the_wheel_and_nothing_of_the_repository(tmp_path: Path) -> None:
    package = unpack_wheel(tmp_path)
    for name in ("app.py", "test_app.py"):
        (tmp_path / name).write_text(file_of(HOW_TO / "use-in-your-project.md", name))
    origin = run_python(tmp_path, package, "-c", "import ackbox; print(ackbox.__file__)")
    assert origin.startswith(str(package))
    run_python(tmp_path, package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py")
    assert "applied 0001" in run_python(tmp_path, package, "-m", "ackbox", "migrate")


# N18
def test_no_page_recommends_a_test_client_that_opens_the_real_ledger() -> None:
    recipes = {page: [block.text for block in blocks(page)] for page in PAGES}
    assert [page for page, texts in recipes.items() if any("TestClient" in t for t in texts)] == []
    tested = next(text for text in recipes[HOW_TO / "testing.md"] if "from web import app" in text)
    assert "InboxHarness(inbox)" in tested


# N8
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    unit = tmp_path / "ackbox.service"
    command = str(Path(sys.executable).with_name("ackbox"))
    text = file_of(SYSTEMD, "ackbox.service").replace("/srv/inbox/.venv/bin/ackbox", command)
    unit.write_text(text.replace("/srv/inbox", str(tmp_path)))
    assert parse_unit(text).keys() >= {"Unit", "Service", "Install"}
    if analyze := which("systemd-analyze"):
        done = subprocess.run(
            [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


# N8
def test_the_unit_serves_restarts_and_stops_as_the_page_says() -> None:
    unit = parse_unit(file_of(SYSTEMD, "ackbox.service"))
    service = unit["Service"]
    assert shlex.split(service["ExecStart"])[1:] == ["serve", "app:inbox"]
    assert service["Restart"] == "on-failure"
    assert int(service["TimeoutStopSec"]) > Settings().shutdown_grace.total_seconds()
    hardening = {"NoNewPrivileges": "true", "ProtectSystem": "strict", "ProtectHome": "true"}
    assert hardening.items() <= service.items()


# N8
def test_the_environment_file_names_settings_and_keeps_the_ledger_where_the_unit_may_write() -> (
    None
):
    lines = file_of(SYSTEMD, "ackbox.env").splitlines()
    given = dict(line.removeprefix("#").split("=", 1) for line in lines if "=" in line)
    assert {name.removeprefix("ACKBOX_").lower() for name in given} <= Settings.model_fields.keys()
    state = parse_unit(file_of(SYSTEMD, "ackbox.service"))["Service"]["StateDirectory"]
    ledgers = [value for name, value in given.items() if name.endswith("DB_PATH")]
    assert [Path(ledger).parent for ledger in ledgers] == [Path("/var/lib") / state]


def unpack_wheel(folder: Path) -> Path:
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, cwd=folder)
    (wheel,) = folder.glob("ackbox-*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(folder / "package")
    return folder / "package"


def run_python(folder: Path, package: Path, *arguments: str) -> str:
    """Run Python with the wheel's package in front of the one that the tests have installed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def file_of(page: Path, name: str) -> str:
    return next(block.text for block in blocks(page) if block.info.endswith(f" file={name}"))


def parse_unit(text: str) -> ConfigParser:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit
