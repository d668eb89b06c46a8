"""ADR 10: what is left of a payload when it is parsed and printed again."""
# ruff: noqa: T201

import json

PAYLOADS = [
    '{"total": 1.10, "total": 2}',
    "12345678901234567890.123456789",
    "1E400",
    r'"\u0041"',
    "[1,2]",
]

if __name__ == "__main__":
    for payload in PAYLOADS:
        print(payload, "->", json.dumps(json.loads(payload)))
