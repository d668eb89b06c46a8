"""The registry of declared sources, built from the tables in the settings file and in code."""

import random
from collections.abc import Callable, Mapping

from msgspec import Struct

from ackbox.config import Settings, SourceTable, read_secret, warn_of_open_ingest
from ackbox.errors import SettingError
from ackbox.model import APP_SOURCE
from ackbox.ports import Webhook
from ackbox.sources.declaration import SourceDeclaration, declare, is_open_webhooks
from ackbox.sources.webhook import SignedWebhook

WEBHOOKS = "webhooks"
"""The source of `POST /webhooks`, which is always there."""
ReadSecret = Callable[[str], bytes]


class Sources(Struct, frozen=True):
    """The sources that a process receives from. `needs_token` says that `/webhooks` is closed to
    senders without `INGEST_TOKEN`: an event that anyone can forge would reach the same handlers as
    the events of a signed source. `secret_headers` has, by source, the headers that its table
    declares for a token or a signature."""

    webhooks: Mapping[str, Webhook]
    needs_token: bool = False
    secret_headers: Mapping[str, frozenset[str]] = {}

    @property
    def labels(self) -> frozenset[str]:
        """The names of the sources in the metrics."""
        return frozenset((WEBHOOKS, APP_SOURCE, *self.webhooks))


NO_SOURCES = Sources({})


def declare_sources(tables: Mapping[str, SourceTable]) -> dict[str, SourceDeclaration]:
    """Check the tables, without their secrets. `[sources.webhooks]` is checked, but is not in the
    result."""
    _is_open(tables)
    others = (table for table in tables.values() if table.name != WEBHOOKS)
    return {table.name: declare(table.name, table.words, table.origin) for table in others}


def build_sources(
    tables: Mapping[str, SourceTable], read_secret: ReadSecret = read_secret
) -> Sources:
    """Return the sources with their secrets; raise `SettingError` if a table or a secret is
    wrong."""
    declared = declare_sources(tables)
    webhooks = {name: open_source(source, read_secret) for name, source in declared.items()}
    secret_headers = {name: source.secret_headers for name, source in declared.items()}
    return Sources(webhooks, _needs_token(declared, tables), secret_headers)


def open_source(
    declaration: SourceDeclaration, read_secret: ReadSecret = read_secret
) -> SignedWebhook:
    """Read the secrets of a source, and return the source."""
    try:
        secrets = tuple(read_secret(reference) for reference in declaration.secrets)
        declaration = declaration.with_secret_options(read_secret)
    except SettingError as error:
        raise declaration.refuse(f"secret: {error}") from None
    return SignedWebhook(declaration, secrets, random.getrandbits)


def warn_of_open_sources(settings: Settings, tables: Mapping[str, SourceTable]) -> list[str]:
    """Return a line for each way in that needs neither a token nor a signature. A signed source
    closes `/webhooks`, unless its table opens it."""
    declared = declare_sources(tables)
    lines = [
        f"Anyone can send events as the source {source.name}, which verifies nothing "
        f'(verify = "none" in {source.origin}): use a preset, or check the senders in a proxy.'
        for source in declared.values()
        if not source.is_verified
    ]
    if _is_open(tables) and settings.ingest_token is None:
        lines.append(
            'Anyone can send events to /webhooks ([sources.webhooks] has verify = "none"): set '
            "ACKBOX_INGEST_TOKEN instead."
        )
    elif not _needs_token(declared, tables):
        lines += warn_of_open_ingest(settings)
    return lines


def _needs_token(
    declared: Mapping[str, SourceDeclaration], tables: Mapping[str, SourceTable]
) -> bool:
    return any(source.is_verified for source in declared.values()) and not _is_open(tables)


def _is_open(tables: Mapping[str, SourceTable]) -> bool:
    table = tables.get(WEBHOOKS)
    return table is not None and is_open_webhooks(table.words, table.origin)
