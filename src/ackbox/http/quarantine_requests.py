"""The requests of the routes of the quarantine. An unknown or invalid parameter gets 400."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from ackbox.http.problems import HttpError
from ackbox.http.request_models import Limit, Name, NumberText
from ackbox.model import (
    QuarantineFilter,
    QuarantineId,
    RefusalReason,
    check_name,
)

_NO_TERM = (
    'Give source, reason or {"all": true}, so that an omission never selects every request of the '
    "quarantine."
)


class QuarantineTerms(BaseModel, extra="forbid"):
    """The kept requests to select. A term that is not given matches every request."""

    source: Name | None = None
    reason: RefusalReason | None = None

    def to_filter(self) -> QuarantineFilter:
        return QuarantineFilter(self.source and check_name("source", self.source), self.reason)


class QuarantineQuery(QuarantineTerms, extra="forbid"):
    limit: Limit = 50
    cursor: Annotated[NumberText | None, Field(description="The `next` of the previous page.")] = (
        None
    )

    def quarantine_cursor(self) -> QuarantineId | None:
        return None if self.cursor is None else QuarantineId(int(self.cursor))


def _needs_a_term(schema: dict[str, Any]) -> None:
    """Require in JSON Schema that at least one term is given."""
    terms = {"source": {"type": "string"}, "reason": {"type": "string"}, "all": {"const": True}}
    schema["anyOf"] = [
        {"required": [name], "properties": {name: value}} for name, value in terms.items()
    ]


class QuarantineAction(QuarantineTerms, extra="forbid", json_schema_extra=_needs_a_term):
    """The kept requests to release or drop."""

    all: Annotated[bool, Field(strict=True, description="Select every request.")] = False
    dry_run: Annotated[bool, Field(strict=True, description="Change nothing; only count.")] = False

    def to_filter(self) -> QuarantineFilter:
        where = super().to_filter()
        if where == QuarantineFilter() and not self.all:
            raise HttpError(400, _NO_TERM)
        return where
