"""Load SQL from `.sql` files, which consist of named blocks (`-- name: record`).

A part that several blocks of a file share is written once (`-- part: wanted`). A line of its own
(`-- here: wanted`) inserts the part into a block. The comment lines at the start of a block are for
readers and are left out: when apsw traces statements (`trace_v2`), it takes a statement that begins
with `--` for a statement of a trigger, and does not reset its counters (measured with apsw 3.54.1).

The lists of event columns are parts that no file defines: each store derives them in `columns.py`.
"""

import re
from collections.abc import Mapping
from importlib.resources import files

_HEADING = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_DESCRIPTION = re.compile(r"\A(?:--[^\n]*\n)+")
_HERE = re.compile(r"^ *-- here: (\w+)$", re.MULTILINE)


def load_blocks(package: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Return all named blocks of a package's `sql` folder, whose files may use the given parts as
    well as their own. Raise `ValueError` for a duplicate."""
    blocks: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for name, text in split_blocks(file.read_text("utf-8"), parts).items():
                if name in blocks:
                    raise ValueError(f"SQL block {name} is defined twice in {package}")
                blocks[name] = text
    return blocks


def split_blocks(text: str, parts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the blocks of one file. Raise `ValueError` for a duplicate name or a missing part."""
    _, *pieces = _HEADING.split(text)
    bodies: dict[str, dict[str, str]] = {"name": {}, "part": dict(parts or {})}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if name in bodies[kind]:
            raise ValueError(f"SQL {kind} {name} is defined twice in one file")
        bodies[kind][name] = body.strip("\n")

    def insert(here: re.Match[str]) -> str:
        if here[1] not in bodies["part"]:
            raise ValueError(f"SQL part {here[1]} is not defined in the file that uses it")
        return _HERE.sub(insert, bodies["part"][here[1]])

    blocks = {name: _HERE.sub(insert, body).strip() for name, body in bodies["name"].items()}
    return {name: _DESCRIPTION.sub("", block) for name, block in blocks.items()}
