"""Telegram bots: a token in a header. Telegram signs nothing, and sends one update at a time."""

import re
from dataclasses import dataclass

from ackbox.errors import SettingError
from ackbox.sources.fields import Delivery, FirstOf, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import Scheme, TokenHeader, check_secrets

_TOKEN = re.compile(rb"[A-Za-z0-9_-]{1,256}")


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """The name of the member beside `update_id`, such as `message` or `callback_query`."""

    def read(self, delivery: Delivery) -> str | None:
        document = delivery.document
        names = document if isinstance(document, dict) else ()
        return next((name for name in names if name != "update_id"), None)


def scheme(settings: SchemeSettings) -> Scheme:
    tokens = check_secrets(settings.secrets)
    if not all(_TOKEN.fullmatch(token) for token in tokens):
        raise SettingError(
            "secret must be the secret_token of setWebhook: 1 to 256 of A-Z, a-z, 0-9, _ and -"
        )
    return TokenHeader(tokens=tokens, header="x-telegram-bot-api-secret-token")


TELEGRAM = Preset(
    name="telegram",
    scheme=scheme,
    key=Pointer("/update_id"),
    type=UpdateKind(),
    sequence=Pointer("/update_id"),
    time=FirstOf(
        (
            Pointer("/message/date"),
            Pointer("/edited_message/edit_date"),
            Pointer("/channel_post/date"),
            Pointer("/edited_channel_post/edit_date"),
        )
    ),
)
