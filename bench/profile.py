"""Where the time goes: ackbox under load, sampled by py-spy."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path

from bench import programs
from bench.failure import BenchFailed
from bench.load import generator
from bench.load.generator import Load
from bench.options import Options
from bench.server import running

TOP = 20
LOCATION = re.compile(r"(?P<function>.+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
THREAD = re.compile(r"thread \([^)]*\)(?:: )?(?P<name>.*)$")


@dataclass(frozen=True)
class Profile:
    """Samples of threads that were running; time spent waiting for disk or socket is not in it."""

    threads: Counter[str]
    areas: Counter[str]
    functions: Counter[str]
    lines: Counter[str]

    @property
    def samples(self) -> int:
        return self.threads.total()


def take(options: Options) -> Profile:
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        stacks = Path(directory) / "stacks.txt"
        _record(_py_spy(), stacks, options)
        return read(stacks.read_text())


def read(collapsed: str) -> Profile:
    """From py-spy's raw format: a stack, outermost frame first, and how often it was seen."""
    profile = Profile(Counter(), Counter(), Counter(), Counter())
    for entry in collapsed.splitlines():
        stack, _, seen = entry.rpartition(" ")
        outermost, *_, innermost = stack.split(";")
        _count(profile, outermost, innermost, int(seen))
    return profile


def text(profile: Profile) -> str:
    total = profile.samples
    parts = [f"where the time goes: {total} samples of running threads, by self time"]
    parts += _table("thread", profile.threads, total)
    parts += _table("area", profile.areas, total)
    parts += _table("function (with the C code it calls)", profile.functions, total)
    parts += _table("line of ackbox", profile.lines, total)
    return "\n".join(parts)


def plain(profile: Profile) -> dict[str, object]:
    counters = {field.name: getattr(profile, field.name) for field in fields(profile)}
    return {"samples": profile.samples} | {
        name: dict(counter.most_common(TOP)) for name, counter in counters.items()
    }


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise BenchFailed("py-spy is not installed (`make bench` installs it)")
    return program


def _record(py_spy: str, stacks: Path, options: Options) -> None:
    load = Load(options.connections, options.profile_seconds + 1, generator=options.generator)
    with running(programs.ackbox(stacks.parent / "ledger.db"), stacks.parent) as server:
        generator.run(replace(load, seconds=options.warm_up), server.port)
        recorder = subprocess.Popen(
            [
                *(py_spy, "record", "--pid", str(server.process.pid), "--format", "raw"),
                *("--duration", str(options.profile_seconds), "--threads"),
                *("--output", str(stacks)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        generator.run(load, server.port)
        _, stderr = recorder.communicate()
    if recorder.returncode:
        raise BenchFailed(f"py-spy could not record (it may need root here): {stderr.strip()}")


def _count(profile: Profile, outermost: str, innermost: str, seen: int) -> None:
    thread, location = THREAD.match(outermost), LOCATION.match(innermost)
    profile.threads[thread["name"].strip('"') if thread else "unnamed"] += seen
    if location is None:
        profile.areas["unknown"] += seen
        return
    area = _area(location["file"])
    profile.areas[area] += seen
    profile.functions[f"{location['function']} ({location['file']})"] += seen
    if area.startswith("ackbox"):
        profile.lines[f"{location['file']}:{location['line']} {location['function']}"] += seen


def _area(file: str) -> str:
    """ackbox by module, everything else by package."""
    parts = Path(file).with_suffix("").parts
    if "ackbox" in parts[:-1]:
        inside = len(parts) - 1 - parts[::-1].index("ackbox")
        return "/".join(parts[inside : inside + 2])
    if file == "asyncio/runners.py":
        return "uvloop (the frame below which its C code runs)"
    return parts[0] if len(parts) > 1 else f"stdlib {parts[0]}"


def _table(title: str, counts: Counter[str], total: int) -> list[str]:
    ranked = counts.most_common(TOP)
    return ["", f"  {title}", *(f"  {seen / total:>6.1%}  {name}" for name, seen in ranked)]
