"""Source trees to measure: the working tree, and a git worktree of another revision."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.failure import BenchFailed
from bench.options import Options
from bench.server import ROOT, clean_environment

Contenders = Mapping[str, Mapping[str, Any]]
"""The figures of each contender of a round, by its name."""

ROUND_LIMIT = 900.0
OURS = ("ackbox", "ackbox-50")
FAULTY = 1
"""The exit code of a bench that ran and missed a bound. Its figures are still written."""


@dataclass(frozen=True)
class Tree:
    """A checkout with a virtual environment of its own. It is measured by its own bench, so that
    tables and settings may have other names there."""

    label: str
    root: Path
    python: Path
    workspace: Path
    """The folder of its databases. Those of both trees must be on one disk."""

    def measure(self, section: str, options: Options) -> Contenders:
        """Run one round of a section."""
        target = self.workspace / "against.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        command = [str(self.python), "-m", "bench", section, "--json", str(target)]
        done = subprocess.run(
            [*command, "--dir", str(self.workspace), *arguments(section, options)],
            cwd=self.root,
            env=clean_environment({"PYTHONPATH": str(self.root)}),
            capture_output=True,
            text=True,
            timeout=ROUND_LIMIT,
            check=False,
        )
        if done.returncode not in (0, FAULTY) or not target.exists():
            raise BenchFailed(f"{section} on {self.label}: {_last_lines(done)}")
        return _figures(json.loads(target.read_text()), f"{section} on {self.label}")


def working_tree(directory: Path) -> Tree:
    return Tree("this tree", ROOT, Path(sys.executable), directory)


def worktree_of(revision: str, directory: Path) -> Tree:
    """Check the revision out and install its pinned requirements. A second call reuses both."""
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    root = directory / "against" / commit[:12]
    if not (root / "Makefile").exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--force", "--detach", str(root), commit)
    _call(["make", "--silent", "-C", str(root), ".venv/.bench"], "its requirements")
    return Tree(commit[:12], root, root / ".venv" / "bin" / "python", root / ".bench")


def arguments(section: str, options: Options) -> list[str]:
    """Return the options of one round; the sizes are given in full, for defaults may differ."""
    on_postgres = section.startswith("postgres-")
    grown = options.postgres_grown_rows if on_postgres else options.grown_rows
    preloaded = options.postgres_preloaded_rows if on_postgres else options.preloaded_rows
    only = [part for name in OURS for part in ("--only", name)]
    sizes = {
        "--rounds": 1,
        "--seconds": options.seconds,
        "--connections": options.connections,
        "--batch-connections": options.batch_connections,
        "--lines": options.lines,
        "--grown-rows": grown,
        "--steady-rate": options.steady_rate,
        "--preloaded-rows": preloaded,
        "--postgres": options.postgres_major,
        "--generator": options.generator,
    }
    if options.quick:
        only.append("--quick")
    return [*only, *(str(part) for size in sizes.items() for part in size)]


def _figures(report: Mapping[str, Any], what: str) -> Contenders:
    rows = {row["name"]: row for part in report["sections"] for row in part["contenders"]}
    complaints = [f"{name}: {text}" for name, row in rows.items() for text in row["complaints"]]
    if complaints:
        raise BenchFailed(f"{what}: {complaints[0]}")
    return rows


def _git(*arguments: str) -> str:
    return _call(["git", "-C", str(ROOT), *arguments], f"git {arguments[0]}")


def _call(command: Sequence[str], what: str) -> str:
    environment = clean_environment({})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"--against: {what} failed. {_last_lines(done)}".rstrip())
    return done.stdout.strip()


def _last_lines(done: "subprocess.CompletedProcess[str]") -> str:
    return "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
