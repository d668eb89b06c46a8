"""Signatures with public keys, which need the optional package `cryptography`."""

from collections.abc import Iterator
from contextlib import contextmanager

from ackbox.errors import SettingError


@contextmanager
def crypto_needed(what: str) -> Iterator[None]:
    """Run imports of `cryptography`. If they fail, raise an error that names the extra."""
    try:
        yield
    except ImportError:
        raise SettingError(
            f"{what} needs the package cryptography: install ackbox[crypto]"
        ) from None
