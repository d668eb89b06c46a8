"""Tables and verdicts: plain text for people, JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.sample import Summary
from bench.sections import Bar, Section

HEADER = f"  {'':<14}{'events/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'CPU us/event':>14}{'errors':>8}"


@dataclass(frozen=True)
class Verdict:
    bar: Bar
    ratio: float

    @property
    def missed(self) -> bool:
        return self.ratio < self.bar.must


def verdicts(section: Section) -> list[Verdict]:
    """A bar whose contenders did not both run has none."""
    found: list[Verdict] = []
    for bar in section.bars:
        of, against = section.summaries.get(bar.of), section.summaries.get(bar.against)
        if of and against and against.rate:
            found.append(Verdict(bar, of.rate / against.rate))
    return found


def failed(section: Section) -> bool:
    complaints = any(summary.complaints for summary in section.summaries.values())
    return complaints or any(verdict.missed for verdict in verdicts(section))


def text(section: Section) -> str:
    lines = [f"{section.title}; medians", HEADER]
    lines += map(_row, section.summaries.values())
    lines += map(_verdict_line, verdicts(section))
    lines += [
        f"  FAILED {summary.name}: {complaint}"
        for summary in section.summaries.values()
        for complaint in summary.complaints
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


def _row(summary: Summary) -> str:
    return (
        f"  {summary.name:<14}{summary.rate:>11,.0f}{_number(summary.p50_ms):>9}"
        f"{_number(summary.p99_ms):>9}{_number(summary.cpu_us):>14}{summary.errors:>8}"
        f"   ({summary.slowest:,.0f} to {summary.fastest:,.0f})"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _verdict_line(verdict: Verdict) -> str:
    bar = verdict.bar
    line = f"  {f'{bar.of} / {bar.against}':<28}{verdict.ratio:>7.2f}"
    line += f"   must {bar.must:.2f} {_mark(verdict.ratio >= bar.must)}"
    return line + (f"   aim {bar.aim:.2f} {_mark(verdict.ratio >= bar.aim)}" if bar.aim else "")


def _mark(reached: bool) -> str:
    return "pass" if reached else "MISS"


def _plain(section: Section) -> dict[str, object]:
    return {
        "title": section.title,
        "contenders": [asdict(summary) for summary in section.summaries.values()],
        "ratios": [{**asdict(found.bar), "ratio": found.ratio} for found in verdicts(section)],
        "failed": failed(section),
    }
