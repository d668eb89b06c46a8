"""SQL lives in `.sql` files as named blocks (`-- name: record`); this reads them."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_blocks(package: str) -> dict[str, str]:
    """All named blocks of the package's `sql` folder; a name stands for one block only."""
    blocks: dict[str, str] = {}
    for file in sorted(files(package).joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            for name, text in _split(file.read_text("utf-8")):
                if name in blocks:
                    raise ValueError(f"SQL block {name} is defined twice in {package}")
                blocks[name] = text
    return blocks


def _split(text: str) -> list[tuple[str, str]]:
    _, *parts = _NAME.split(text)
    return [(name, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)]
