"""One module for each sender, and the table of all of them."""

from collections.abc import Mapping

from ackbox.sources.preset import Preset
from ackbox.sources.presets.generic import BASIC, BEARER, HEADER, HMAC, NONE
from ackbox.sources.presets.github import GITHUB
from ackbox.sources.presets.gitlab import GITLAB
from ackbox.sources.presets.linear import LINEAR
from ackbox.sources.presets.mailgun import MAILGUN
from ackbox.sources.presets.meta import META
from ackbox.sources.presets.msgraph import MSGRAPH
from ackbox.sources.presets.paddle import PADDLE
from ackbox.sources.presets.sendgrid import SENDGRID
from ackbox.sources.presets.shopify import SHOPIFY
from ackbox.sources.presets.slack import SLACK
from ackbox.sources.presets.standard_webhooks import STANDARD_WEBHOOKS, SVIX
from ackbox.sources.presets.stripe import STRIPE
from ackbox.sources.presets.telegram import TELEGRAM
from ackbox.sources.presets.twilio import TWILIO
from ackbox.sources.presets.zoom import ZOOM

_ALL = (
    BASIC,
    BEARER,
    GITHUB,
    GITLAB,
    HEADER,
    HMAC,
    LINEAR,
    MAILGUN,
    META,
    MSGRAPH,
    NONE,
    PADDLE,
    SENDGRID,
    SHOPIFY,
    SLACK,
    STANDARD_WEBHOOKS,
    STRIPE,
    SVIX,
    TELEGRAM,
    TWILIO,
    ZOOM,
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ALL}
"""Every preset by the name that `preset = "NAME"` gives in a source's table."""
