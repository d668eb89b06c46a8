"""Keys of ed25519, with the optional package `cryptography`."""

from collections.abc import Callable

from ackbox.sources.schemes.crypto import crypto_needed

Match = Callable[[bytes, bytes], bool]
"""Tell whether a signature (second argument) is that of a message (first argument)."""

Sign = Callable[[bytes], bytes]


def load_public(key: bytes) -> Match:
    """Return the check of the signatures that belong to a public key of 32 bytes."""
    with crypto_needed("a whpk_ or whsk_ key"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(key)

    def match(message: bytes, signature: bytes) -> bool:
        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return match


def load_private(seed: bytes) -> tuple[Match, Sign]:
    """Return the check and the signing of the key that belongs to a seed of 32 bytes."""
    with crypto_needed("a whpk_ or whsk_ key"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(seed)
    return load_public(private.public_key().public_bytes_raw()), private.sign
