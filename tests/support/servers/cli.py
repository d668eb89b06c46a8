"""Run commands in this process, which is fast, or in a process of their own, as people do."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackbox.cli import main
from ackbox.config import Settings
from ackbox.model import Envelope

Ledger = Callable[[Sequence[Envelope]], Path]
"""A function that makes `ackbox.db` with these events in the folder of the test."""

COMMAND = (sys.executable, "-m", "ackbox")
VARIABLES = (*(name.upper() for name in Settings.model_fields), "ACKBOX_CONFIG")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line with which a command failed."""
        assert self.code == 1, self
        assert self.err.startswith("ackbox: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("ackbox: ").rstrip("\n")


class Cli:
    """Calls commands in `folder`, with only the settings that are given."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._patch = patch
        self._capture = capture

    def __call__(self, *arguments: str, **settings: str) -> Done:
        with self._patch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["ackbox", *arguments])
            for name in VARIABLES:
                patch.delenv(name, raising=False)
            for name, value in settings.items():
                patch.setenv(name, value)
            self._capture.readouterr()
            with pytest.raises(SystemExit) as end:
                main()
        captured = self._capture.readouterr()
        return Done(int(end.value.code or 0), captured.out, captured.err)


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command. Its output is buffered, as it is by default."""
    unwanted = {*VARIABLES, "PYTHONUNBUFFERED"}
    return {**{n: v for n, v in os.environ.items() if n not in unwanted}, **settings}


def run(*arguments: str, folder: Path, stdin: bytes = b"", **settings: str) -> Done:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(settings),
        input=stdin,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
