"""Tables and verdicts: plain text for people, JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.bars import Bar, Ceiling, Section, Verdict, verdicts
from bench.sample import Summary

TITLES = {
    "rate": "events/s",
    "completed_rate": "completed/s",
    "backlog": "backlog",
    "backlog_growth": "backlog growth",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us": "CPU us/event",
    "errors": "errors",
}
WIDTHS = {
    "rate": 11,
    "completed_rate": 14,
    "backlog": 26,
    "p50_ms": 9,
    "p99_ms": 9,
    "cpu_us": 14,
    "errors": 8,
}


def failed(section: Section) -> bool:
    has_problems = any(summary.complaints for summary in section.summaries.values())
    return has_problems or any(verdict.missed for verdict in verdicts(section))


def text(section: Section) -> str:
    summaries = section.summaries.values()
    columns = [name for name in WIDTHS if any(getattr(s, name) is not None for s in summaries)]
    lines = [f"{section.title}; medians", _header(columns)]
    lines += [_row(summary, columns) for summary in summaries]
    lines += map(_verdict_line, verdicts(section))
    lines += [
        f"  FAILED {summary.name}: {problem}"
        for summary in summaries
        for problem in summary.complaints
    ]
    return "\n".join(lines)


def write_json(
    target: Path,
    environment: Mapping[str, str],
    sections: Sequence[Section],
    profile: Mapping[str, object] | None,
) -> None:
    content = {
        "environment": dict(environment),
        "sections": [_plain(section) for section in sections],
        "profile": profile,
        "passed": not any(map(failed, sections)),
    }
    target.write_text(json.dumps(content, indent=2) + "\n")


def write_comparisons(
    target: Path, environment: Mapping[str, str], comparisons: Sequence[Mapping[str, object]]
) -> None:
    content = {"environment": dict(environment), "comparisons": comparisons}
    target.write_text(json.dumps(content, indent=2) + "\n")


def _header(columns: Sequence[str]) -> str:
    return f"  {'':<16}" + "".join(f"{TITLES[name]:>{WIDTHS[name]}}" for name in columns)


def _row(summary: Summary, columns: Sequence[str]) -> str:
    if summary.failure and not summary.rate:
        return f"  {summary.name:<16}{summary.failure}"
    cells = [f"{_cell(name, getattr(summary, name)):>{WIDTHS[name]}}" for name in columns]
    spread = f"   ({summary.slowest:,.0f} to {summary.fastest:,.0f})"
    failure = f"   {summary.failure}" if summary.failure else ""
    return f"  {summary.name:<16}{''.join(cells)}{spread}{failure}"


def _cell(name: str, value: float | tuple[float, ...] | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return " > ".join(f"{moment:,.0f}" for moment in value)
    return f"{value:.1f}" if name in ("p50_ms", "p99_ms", "cpu_us") else f"{value:,.0f}"


def _verdict_line(verdict: Verdict) -> str:
    bound = verdict.bound
    line = f"  {_label(bound):<34}{verdict.value:>7.2f}"
    for name, limit in (("must", bound.must), ("aim", bound.aim)):
        if limit is not None:
            mark = "pass" if verdict.reaches(limit) else "MISS"
            line += f"   {name} {_limit(bound)}{limit:.2f} {mark}"
    return line


def _label(bound: Bar | Ceiling) -> str:
    if isinstance(bound, Ceiling):
        return f"{bound.of}, {TITLES[bound.figure]}"
    figure = "" if bound.figure == "rate" else f", {TITLES[bound.figure]}"
    return f"{bound.of} / {bound.against}{figure}"


def _limit(bound: Bar | Ceiling) -> str:
    return "at most " if isinstance(bound, Ceiling) else ""


def _plain(section: Section) -> dict[str, object]:
    judged = verdicts(section)
    return {
        "title": section.title,
        "contenders": [asdict(summary) for summary in section.summaries.values()],
        "ratios": [
            {**asdict(verdict.bound), "ratio": verdict.value}
            for verdict in judged
            if isinstance(verdict.bound, Bar)
        ],
        "ceilings": [
            {**asdict(verdict.bound), "value": verdict.value}
            for verdict in judged
            if isinstance(verdict.bound, Ceiling)
        ],
        "failed": failed(section),
    }
