"""Keys of ECDSA on the curve P-256 with SHA-256, with the optional package `cryptography`."""

from ackbox.errors import SettingError
from ackbox.sources.schemes.crypto import crypto_needed
from ackbox.sources.schemes.ed25519 import Match, Sign

_WHAT = "the verification key of this sender"


def load_public(der: bytes) -> Match:
    """Return the check of the signatures of a public key. Raise `SettingError` if it is none."""
    with crypto_needed(_WHAT):
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        public = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != "secp256r1":
        raise SettingError(
            "secret must be the verification key that the sender shows: a public key of the curve "
            "P-256 in base64, without the lines BEGIN and END"
        )
    key, method = public, ec.ECDSA(SHA256())

    def match(message: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, message, method)
        except InvalidSignature:
            return False
        return True

    return match


def load_private(der: bytes) -> tuple[Match, Sign] | None:
    """Return the check and the signing of a private key, or None if it is none."""
    with crypto_needed(_WHAT):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            PublicFormat,
            load_der_private_key,
        )

    try:
        private = load_der_private_key(der, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        return None
    public = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return load_public(public), lambda message: private.sign(message, ec.ECDSA(SHA256()))
