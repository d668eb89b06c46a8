"""The column lists of this store's SQL, derived from the columns of an event."""

from collections.abc import Iterable, Mapping

from ackbox.model import Claim, EventRecord
from ackbox.stores.columns import EVENT_COLUMNS, LEASE, RECORDED, Kind

_TYPES = {
    Kind.INTEGER: "bigint",
    Kind.TEXT: "text",
    Kind.TIME: "timestamptz",
    Kind.UUID: "uuid",
    Kind.JSON: "jsonb",
    Kind.BYTES: "bytea",
}
_SENT_AS_TEXT = (Kind.TIME, Kind.JSON)
"""The kinds that a promotion sends as the text that SQLite has."""


def parts() -> Mapping[str, str]:
    """Return the parts that the `.sql` files do not define themselves."""
    return {
        "recorded_columns": _listed(RECORDED),
        "recorded_arrays": _listed(_array(name, _TYPES[EVENT_COLUMNS[name]]) for name in RECORDED),
        "claim_columns": _listed(_as_text(name, Kind.UUID) for name in Claim.__struct_fields__),
        "record_columns": _listed(
            _shown(n) for n in EventRecord.__struct_fields__ if n in EVENT_COLUMNS
        ),
        "transfer_columns": _listed(EVENT_COLUMNS),
        "transfer_arrays": _listed(
            _array(name, _sent_type(kind)) for name, kind in EVENT_COLUMNS.items()
        ),
        "transferred_values": _listed(_received(name) for name in EVENT_COLUMNS),
        "compared_columns": _listed(_compared(name) for name in EVENT_COLUMNS),
    }


def _listed(columns: Iterable[str]) -> str:
    return ",\n    ".join(columns)


def _array(name: str, type_name: str) -> str:
    return f":{name}::{type_name}[]"


def _as_text(name: str, *kinds: Kind) -> str:
    return f"{name}::text AS {name}" if EVENT_COLUMNS[name] in kinds else name


def _shown(name: str) -> str:
    if EVENT_COLUMNS[name] is Kind.BYTES:
        return f"encode({name}, 'hex') AS {name}"
    return _as_text(name, Kind.UUID)


def _sent_type(kind: Kind) -> str:
    return "text" if kind in _SENT_AS_TEXT else _TYPES[kind]


def _received(name: str) -> str:
    """Return the value of a transferred column. A lease of the file has expired: its process is
    gone."""
    kind = EVENT_COLUMNS[name]
    value = f"{name}::{_TYPES[kind]}" if kind in _SENT_AS_TEXT else name
    return (
        f"CASE WHEN status = 'processing' THEN now() ELSE {value} END" if name in LEASE else value
    )


def _compared(name: str) -> str:
    """Return a column for comparison with the file. The payload is compared by its hash."""
    if name in LEASE:
        return f"CASE WHEN status <> 'processing' THEN {name} END"
    return f"sha256({name})" if name == "payload" else _as_text(name, Kind.UUID, Kind.JSON)
