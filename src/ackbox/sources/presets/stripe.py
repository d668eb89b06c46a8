"""Stripe: the time and an HMAC of time and body in one header."""

from ackbox.sources.fields import Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import HmacPairs, Scheme, check_secrets


def scheme(settings: SchemeSettings) -> Scheme:
    """Return the scheme. The key is the whole text of the secret, `whsec_` included."""
    return HmacPairs(
        secrets=check_secrets(settings.secrets),
        header="stripe-signature",
        separator=",",
        time_name="t",
        signature_name="v1",
        joint=".",
        tolerance=settings.tolerance,
    )


STRIPE = Preset(
    name="stripe",
    scheme=scheme,
    key=Pointer("/id"),
    type=Pointer("/type"),
    time=Pointer("/created"),
    has_time=True,
)
