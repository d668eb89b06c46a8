"""Where a handler failed, for the log: a place tells no secret, the text of an exception may."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb

from msgspec import Struct

_OWN = str(Path(__file__).parents[1]) + "/"
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")


class Place(Struct, frozen=True):
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({Path(self.file).name}:{self.line})"

    @property
    def is_users(self) -> bool:
        """Neither a library's, nor made at run time."""
        library = self.file.startswith(_STANDARD) or any(part in self.file for part in _INSTALLED)
        return not library and not self.file.startswith("<")


def where_of(error: BaseException) -> str | None:
    """As `grant_access (app.py:12)`: the innermost call in the user's own code; where none of it
    is, the innermost. None if nothing but ackbox had a part in it."""
    found = list(_places(error))
    innermost = [*found, *(place for place in found if place.is_users)][-1:]
    return str(innermost[0]) if innermost else None


def _places(error: BaseException) -> Iterator[Place]:
    """From the outermost to the innermost; ackbox, which called the handler, left out."""
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        if not code.co_filename.startswith(_OWN):
            yield Place(code.co_qualname, code.co_filename, line)
