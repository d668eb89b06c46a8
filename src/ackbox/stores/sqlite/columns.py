"""The column lists of this store's SQL, derived from the columns of an event. Times and ids are
text here."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import astuple

from ackbox.model import Claim, Envelope, EventRecord, to_text
from ackbox.stores.columns import ENVELOPE_FIELDS, EVENT_COLUMNS, LEASE, RECORDED, Kind

ENVELOPE_ROW = f"({', '.join('?' * len(ENVELOPE_FIELDS))})"
"""The row of one event in `record`: the fields of its envelope."""

_TIMES = [
    index
    for index, name in enumerate(ENVELOPE_FIELDS)
    if EVENT_COLUMNS.get(name, Kind.TIME) is Kind.TIME  # `received_at` is no column of its own
]


def to_row(envelope: Envelope) -> list[Any]:
    """Return the fields of the envelope, with times as text."""
    row = [*astuple(envelope)[: len(ENVELOPE_FIELDS)]]
    for index in _TIMES:
        if row[index] is not None:
            row[index] = to_text(row[index])
    return row


def parts() -> Mapping[str, str]:
    """Return the parts that the `.sql` files do not define themselves."""
    return {
        "recorded_columns": _listed(RECORDED),
        "envelope_fields": _listed(ENVELOPE_FIELDS),
        "envelope_row": ENVELOPE_ROW,
        "claim_columns": _listed(_claimed(name) for name in Claim.__struct_fields__),
        "record_columns": _listed(
            _shown(n) for n in EventRecord.__struct_fields__ if n in EVENT_COLUMNS
        ),
        "transfer_columns": _listed(_transferred(name) for name in EVENT_COLUMNS),
    }


def _listed(columns: Iterable[str]) -> str:
    return ",\n    ".join(columns)


def _claimed(name: str) -> str:
    """Qualify the name: `json_each` has an `id` too. A payload above the limit is fetched apart."""
    if EVENT_COLUMNS[name] is Kind.BYTES:
        return f"CASE WHEN length({name}) <= :inline THEN hex({name}) END"
    return f"events.{name}"


def _shown(name: str) -> str:
    return f"lower(hex({name})) AS {name}" if EVENT_COLUMNS[name] is Kind.BYTES else name


def _transferred(name: str) -> str:
    return f"CASE WHEN status <> 'processing' THEN {name} END" if name in LEASE else name
