"""The reference lists every setting, metric, column, state, error and log line, and no others."""

import ast
import re
from collections.abc import Iterator
from enum import StrEnum

import apsw
import pytest
from prometheus_client.core import Metric

import ackbox.errors
from ackbox.config import Settings
from ackbox.config.names import prefixed
from ackbox.exporters import logs
from ackbox.exporters.prometheus import PrometheusMetrics
from ackbox.health import Phase
from ackbox.model import OutcomeName, Receipt, ReceiptKind, Stats, Status
from ackbox.stores.sqlite import migrations
from ackbox.telemetry import (
    Fact,
    Measured,
    Recorded,
    Refused,
    ResponseSent,
    ServiceStarted,
    Started,
)
from docs.damage import NOW, envelope
from docs.pages import PAGES, REFERENCE, ROOT, codes, first_codes, rows, sections

METRIC = re.compile(r"\backbox_[a-z_]+[a-z]\b")
SETTING = re.compile(r"`\$?([A-Z]+_[A-Z_]+)[`=]")
SECRET_REFERENCE = re.compile(r'"env:([A-Z_]+)"')
"""A variable of the user's own choice."""
NO_SETTINGS = {"ID_OR_KEY", "SQLITE_FILE", "ACKBOX_SERVICE_HOST"}
LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


# W16
def test_every_setting_is_listed() -> None:
    listed = first_codes((REFERENCE / "settings.md").read_text())
    assert sorted(listed) == sorted([*map(str.upper, Settings.model_fields), "ACKBOX_CONFIG"])


# W15
def test_every_metric_is_listed_with_its_type_and_labels() -> None:
    page = (REFERENCE / "metrics.md").read_text()
    listed = {name: (row[1], codes(row[2])) for name, row in named_rows(page)}
    assert listed == {exposed_name(family): shape(family) for family in all_metrics()}


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = {name for page in PAGES for name in METRIC.findall(page.read_text())}
    stems = {re.sub("_(bucket|count|sum)$", "", name) for name in named}
    assert stems - {exposed_name(family) for family in all_metrics()} == set()


def test_no_page_names_a_setting_that_is_not_there() -> None:
    texts = [page.read_text() for page in PAGES]
    secrets = {name for text in texts for name in SECRET_REFERENCE.findall(text)}
    named = {name for text in texts for name in SETTING.findall(text)} - secrets
    there = {*map(str.upper, Settings.model_fields), *map(prefixed, Settings.model_fields)}
    assert named - there - {"ACKBOX_CONFIG", "ACKBOX_IMAGE_DEFAULTS"} == NO_SETTINGS


# W9
def test_every_column_of_an_event_is_listed_with_its_type() -> None:
    found = [(row[1], row[2]) for row in empty_ledger().execute("PRAGMA table_info(events)")]
    page = (REFERENCE / "events-table.md").read_text().partition("## ")[0]
    assert [(name, row[1]) for name, row in named_rows(page)] == found


# W9
def test_every_table_and_index_is_listed() -> None:
    schema = "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND name <> 'events'"
    found = {name for (name,) in empty_ledger().execute(schema)}
    assert found <= set(first_codes((REFERENCE / "events-table.md").read_text()))


@pytest.mark.parametrize("words", [Status, ReceiptKind, Phase, OutcomeName])
def test_every_word_for_a_state_is_listed(words: type[StrEnum]) -> None:
    text = (REFERENCE / "states.md").read_text()
    assert set(words) <= set(first_codes(text)) | {
        code for row in rows(text) for code in codes(row[1])
    }


def test_every_error_is_listed() -> None:
    kinds = [kind for kind in vars(ackbox.errors).values() if isinstance(kind, type)]
    found = {kind.__name__ for kind in kinds if issubclass(kind, ackbox.errors.AckboxError)}
    assert set(first_codes(sections(REFERENCE / "problems.md")["Errors"])) == found


# W14
def test_every_log_line_is_listed_with_its_level() -> None:
    page = (REFERENCE / "log-lines.md").read_text()
    assert {name: row[1] for name, row in named_rows(page)} == dict(logged_lines())


def named_rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Return the table rows that begin with inline code."""
    return ((row[0].strip("`"), row) for row in rows(text) if row[0].startswith("`"))


def all_metrics() -> list[Metric]:
    """Return every metric. A metric or a label appears only after a fact about it."""
    metrics = PrometheusMetrics(lambda: NOW, frozenset({"webhooks"}))
    metrics.add_handlers(["app.pay"])
    for fact in telling_facts():
        metrics.observe(fact)
    return list(metrics.collect())


def telling_facts() -> Iterator[Fact]:
    stats = Stats(dict.fromkeys(Status, 0), None)
    sent = envelope(1)
    yield Started(stats, lag_seconds=0.0, engine="", durability="", ledger="", ledger_origin="")
    yield Measured(stats, buffered_events=0, buffered_bytes=0)
    yield Recorded([sent], [Receipt(ReceiptKind.NEW, sent.id, Status.PENDING, NOW)], [0.1])
    yield Refused("queue")
    yield ResponseSent("/webhooks", 202)
    yield ServiceStarted("claims")


def exposed_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def shape(family: Metric) -> tuple[str, set[str]]:
    labels = {label for sample in family.samples for label in sample.labels}
    return family.type, labels - {"le"}


def empty_ledger() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    migrations.apply(connection, migrations.all_migrations())
    return connection


def logged_lines() -> Iterator[tuple[str, str]]:
    """Yield every log line of the code and its level."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                level = node.func.attr
                if level in LEVELS and ast.unparse(node.func.value).endswith("logger"):
                    yield from ((text, level) for text in texts_of(node.args[0]))


def texts_of(line: ast.expr) -> list[str]:
    if isinstance(line, ast.Constant):
        return [str(line.value)]
    assert ast.unparse(line).startswith("_NAMES["), f"a log line must be a constant: {line}"
    return list(logs._NAMES.values())
