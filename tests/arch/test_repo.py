"""Rules of the repository itself."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import ackbox
from ackbox.stores.sqlite.names import SIDE_SUFFIXES

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# Written so that this file does not match itself.
REGISTRY = re.compile(r"pypi[.](org|io)|python[h]osted|npm[j]s[.]|(deb|ftp)[.][d]ebian")
INDEX_OPTION = re.compile(r"--(extra-)?index-[u]rl|--find-[l]inks")
MACHINE_PATH = re.compile(r"(?<![\w.])/(wor[k]|roo[t])/|(?<![\w.])/opt/(whe[e]ls|py[p]i)")


def files() -> Iterator[Path]:
    """Yield all files of the tree that .gitignore does not name; git itself may be missing."""
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [line.strip("/") for line in lines if line and not line.startswith("#")]
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.name == ".git" or any(fnmatch(path.name, pattern) for pattern in ignored):
                continue
            if path.is_dir():
                pending.append(path)
            else:
                yield path


@pytest.mark.parametrize(
    "pattern", [REGISTRY, INDEX_OPTION, MACHINE_PATH], ids=["host", "index option", "path"]
)
def test_no_file_names_a_registry_or_a_machine(pattern: re.Pattern[str]) -> None:
    lines = (
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    )
    assert list(lines) == []


def test_git_ignores_the_lock_files_that_name_hosts() -> None:
    assert {"uv.lock", "pylock*.toml"} <= set((ROOT / ".gitignore").read_text().splitlines())


def test_git_ignores_a_ledger_and_all_that_is_beside_it() -> None:  # N22
    lines = (ROOT / ".gitignore").read_text().splitlines()
    assert {f"*.db{suffix}" for suffix in ("", *SIDE_SUFFIXES)} <= set(lines)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_requirement_is_pinned_and_hashed(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    logical = text.replace("\\\n", " ").splitlines()
    pins = [line for line in logical if line and not line.lstrip().startswith("#")]
    assert pins
    assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []


def test_the_locks_hold_the_same_versions() -> None:
    """One .venv holds all sets, so installing one must not change the version of another."""
    seen: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE):
            seen.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in seen.items() if len(versions) > 1} == {}


def test_the_licence_is_named_by_its_spdx_id() -> None:
    assert project()["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_the_built_version_is_the_one_of_the_package() -> None:
    assert project()["dynamic"] == ["version"]
    declared = pyproject()["tool"]["hatch"]["version"]["path"]
    assert (ROOT / declared).samefile(str(ackbox.__file__))
    assert f'__version__ = "{ackbox.__version__}"' in (ROOT / declared).read_text()


def test_sqlite_with_the_wal_reset_bug_cannot_be_installed() -> None:
    bounds = [line for line in project()["dependencies"] if line.startswith("apsw")]
    assert bounds == ["apsw>=3.53"]  # 3.51.3 has the fix, 3.52.0 was withdrawn


# P11
def test_installing_the_core_brings_no_client_of_a_database_server() -> None:
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE)
    assert "apsw" in names
    assert {"asyncpg", "psycopg", "redis", "hiredis", "sqlalchemy"}.isdisjoint(names)


# N24
def test_every_extra_is_for_a_package_that_the_code_imports() -> None:
    extras = project()["optional-dependencies"]
    unused = {
        f"{name}: {requirement}"
        for name, requirements in extras.items()
        for requirement in requirements
        if re.split(r"\W", requirement)[0] not in imported_packages()
    }
    assert extras
    assert unused == set()


def imported_packages() -> set[str]:
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    from_ = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | from_}


def test_the_layers_hold() -> None:
    command = [str(BIN / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_of_concrete_adapters_is_the_composition_roots_alone() -> None:
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    composition = next(contract for contract in contracts if contract["id"] == "composition")
    concrete = ("stores", "queues", "sources", "exporters")
    there = {f"ackbox.{name}" for name in concrete if (ROOT / "src/ackbox" / name).exists()}
    assert there == set(composition["protected_modules"])
    assert composition["allowed_importers"] == ["ackbox.app"]


# W18
def test_users_of_the_package_get_its_types() -> None:
    assert (ROOT / "src/ackbox/py.typed").is_file()


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def project() -> dict[str, Any]:
    table: dict[str, Any] = pyproject()["project"]
    return table
