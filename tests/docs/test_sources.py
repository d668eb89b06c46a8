"""The pages on sources: every preset is described, and every example is accepted."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ackbox.config.loader import resolve
from ackbox.model import InboundRequest
from ackbox.sources.declaration import declare
from ackbox.sources.fields import Delivery
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.presets import PRESETS
from ackbox.sources.schemes import Verification
from docs.pages import ROOT, blocks, first_codes, name_of, sections
from support.sources.every_sample import SAMPLES

SOURCES = ROOT / "docs" / "how-to" / "sources.md"
PAGES = [SOURCES, *sorted(SOURCES.with_suffix("").glob("*.md"))]


def test_every_preset_is_in_the_table_in_alphabetical_order() -> None:
    assert list(first_codes(sections(SOURCES)["Presets"])) == sorted(PRESETS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_of_a_page_is_one_that_ackbox_accepts(page: Path) -> None:
    tables = [block.text for block in blocks(page) if block.info == "toml"]
    assert tables
    for table in tables:
        for name, words in tomllib.loads(table)["sources"].items():
            declaration = declare(name, words, "ackbox.toml")
            settings = declaration.settings(secrets_of(declaration.preset))
            assert callable(declaration.preset.scheme(settings).verify)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_header_that_is_kept_is_on_the_page_of_its_preset(name: str) -> None:
    page = SOURCES.parent / re.findall(rf"`{name}` .*\((.*?\.md)", SOURCES.read_text())[0]
    text = page.read_text().lower()
    assert [header for header in PRESETS[name].kept_headers if f"`{header}`" not in text] == []


def test_the_preset_of_the_page_on_writing_one_works() -> None:
    (module,) = (block.text for block in blocks(WRITE_A_PRESET) if block.info == "python")
    names: dict[str, Preset] = {}
    exec(module, names)  # noqa: S102 - the page is ours
    acme = names["ACME"]
    body = b'{"event": {"id": "e1", "action": "paid"}}'
    now = datetime.now(UTC)
    request = InboundRequest("POST", "/in/acme", (("acme-topic", "invoice"),), body, now)
    scheme = acme.scheme(SchemeSettings((b"secret",)))
    signed = scheme.sign(request)
    assert scheme.verify(request) is Verification.UNSIGNED
    assert scheme.verify(signed) is Verification.VERIFIED
    assert acme.type is not None
    assert acme.type.read(Delivery(signed)) == "invoice.paid"


WRITE_A_PRESET = SOURCES.with_name("write-a-preset.md")


def secrets_of(preset: Preset) -> tuple[bytes, ...]:
    """Return secrets in the form that the sender gives them."""
    samples = (sample.settings.secrets for sample in SAMPLES if sample.preset == preset.name)
    return next(samples, ())


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_the_settings_for_large_bodies_start(name: str, tmp_path: Path) -> None:
    text = " ".join((SOURCES.with_suffix("") / f"{name}.md").read_text().split())
    found = re.search(r"set both \[`(\w+)`\]\S+ and `(\w+)` to `(\w+)`", text)
    assert found is not None
    settings = dict.fromkeys(found.groups()[:2], found[3])
    assert resolve(settings, directory=tmp_path).settings.max_body_bytes == 25 << 20
