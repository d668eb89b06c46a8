"""GitHub: an HMAC of the body. The id of a delivery is in a header that is not signed."""

from ackbox.sources.fields import Header, Joined, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import HmacHeader, Scheme, check_secrets, parse_template


def scheme(settings: SchemeSettings) -> Scheme:
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header="x-hub-signature-256",
        prefix="sha256=",
        signed=parse_template("{body}"),
    )


GITHUB = Preset(
    name="github",
    scheme=scheme,
    key=Header("x-github-delivery"),
    type=Joined((Header("x-github-event"), Pointer("/action"))),
    kept_headers=(
        "x-github-event",
        "x-github-delivery",
        "x-github-hook-id",
        "x-github-hook-installation-target-type",
        "x-github-hook-installation-target-id",
        "x-github-enterprise-host",
    ),
    fingerprint=True,
)
