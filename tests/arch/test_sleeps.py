"""A test waits for a condition, not for a time: only the files listed here sleep, each for a
reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
SLEEPS = frozenset({"time.sleep", "asyncio.sleep", "sleep"})
SLEEPING = {
    "chaos/test_backlogs.py": "kills a process that has been at work for a while",
    "chaos/test_clocks_on_postgres.py": "runs under load for a while",
    "chaos/test_follow_ups.py": "runs under load for a while",
    "chaos/test_pgbouncer.py": "runs under load for a while",
    "docs/test_blocks.py": "polls: types a command again until it shows the expected output",
    "e2e/test_due_times.py": "restarts at a pace",
    "http/test_slow_peers.py": "is the slow peer",
    "queues/test_redis_losses.py": "sends and disturbs at a pace",
    "support/faults/disturbances.py": "disturbs at a pace",
    "support/faults/follow_ups.py": "kills at a pace",
    "support/ledgers/history.py": "sends at a pace",
    "support/servers/loop_stalls.py": "measures how late the event loop ends a sleep",
    "support/servers/serve.py": "polls a file that another process writes",
    "support/time/polling.py": "polls",
}
"""The files that sleep, and why. Handlers inside the text of an app may be slow."""


def test_only_the_listed_files_sleep() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in sorted(TESTS.rglob("*.py"))
        if (lines := sorted(find_sleeps(path.read_text())))
    }
    new = {name: lines for name, lines in found.items() if name not in SLEEPING}
    assert new == {}, "wait for a condition with `eventually` or `until` (support/time/polling.py)"
    assert sorted(found) == sorted(SLEEPING), "remove the files that no longer sleep"


def test_a_sleep_is_found_however_it_is_called() -> None:
    code = """
time.sleep(1)
await asyncio.sleep(delay)
sleep(0.1)
await asyncio.sleep(0)
await self.clock.sleep(5)
"""
    assert sorted(find_sleeps(code)) == [2, 3, 4]


def find_sleeps(code: str) -> Iterator[int]:
    """Yield the line of each call that sleeps for a time. `sleep(0)` only yields to other tasks,
    and the `sleep` of another object is a test's own."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func) in SLEEPS and [ast.unparse(a) for a in call.args] != ["0"]:
            yield call.lineno
