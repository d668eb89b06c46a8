"""Paddle Billing: the time and one or more HMACs of time and body in one header."""

from ackbox.sources.fields import Pointer
from ackbox.sources.preset import OK_200, Preset, SchemeSettings
from ackbox.sources.schemes import HmacPairs, Scheme, check_secrets


def scheme(settings: SchemeSettings) -> Scheme:
    """Return the scheme. The key is the whole text of the secret, `pdl_ntfset_` included."""
    return HmacPairs(
        secrets=check_secrets(settings.secrets),
        header="paddle-signature",
        separator=";",
        time_name="ts",
        signature_name="h1",
        joint=":",
        tolerance=settings.tolerance,
    )


PADDLE = Preset(
    name="paddle",
    scheme=scheme,
    key=Pointer("/event_id"),
    type=Pointer("/event_type"),
    time=Pointer("/occurred_at"),
    has_time=True,
    acknowledgement=OK_200,
)
