"""Samples that were signed by the senders' SDKs on npm: recorded by `npm/sign.mjs`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ackbox.sources.preset import SchemeSettings
from support.sources.by_senders import twilio_fields
from support.sources.samples import Sample, request

NPM = Path(__file__).with_name("npm")


def samples() -> Iterator[Sample]:
    return (_read(recorded) for recorded in json.loads((NPM / "signed.json").read_text()))


def _read(recorded: dict[str, Any]) -> Sample:
    fields = dict(recorded)
    body, headers, at = fields.pop("body"), fields.pop("headers"), fields.pop("at")
    secret = fields.pop("secret")
    public_url = fields.pop("public_url", None)
    return Sample(
        settings=SchemeSettings((secret.encode(),), public_url=public_url),
        request=request(body.encode(), headers, at, fields.pop("url", "/in/sample")),
        covers=tuple(fields.pop("covers", ["body"])),
        covered=twilio_fields if fields["preset"] == "twilio" else None,
        other_secret=fields.pop("other_secret", "other:secret").encode(),
        **fields,
    )
