"""SQL lives in `.sql` files as named blocks (`-- name: record`); this reads them.

What several blocks of a file have in common stands there once (`-- part: wanted`) and comes into a
block by a line of its own (`-- here: wanted`).
"""

import re
from importlib.resources import files

_HEADING = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_HERE = re.compile(r"^ *-- here: (\w+)$", re.MULTILINE)


def load_blocks(package: str) -> dict[str, str]:
    """All named blocks of the package's `sql` folder; a name stands for one block only."""
    blocks: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for name, text in split_blocks(file.read_text("utf-8")).items():
                if name in blocks:
                    raise ValueError(f"SQL block {name} is defined twice in {package}")
                blocks[name] = text
    return blocks


def split_blocks(text: str) -> dict[str, str]:
    """Of one file; raises `ValueError` for a name that is there twice, or a part that is not."""
    _, *pieces = _HEADING.split(text)
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        if name in found[kind]:
            raise ValueError(f"SQL {kind} {name} is defined twice in one file")
        found[kind][name] = body.strip("\n")

    def insert(here: re.Match[str]) -> str:
        if here[1] not in found["part"]:
            raise ValueError(f"SQL part {here[1]} is not in the file that wants it")
        return found["part"][here[1]]

    return {name: _HERE.sub(insert, body).strip() for name, body in found["name"].items()}
