"""The keys of the webhook: whom to tell when the diagnosis changes."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from dlq_handler.settings.urls import WebhookUrl
from dlq_handler.settings.value_types import OwnSection, Seconds, in_words


def _header_value(text: SecretStr) -> SecretStr:
    value = text.get_secret_value()
    # Refused here: a line break at the end of a secret's file would fail every message, at night.
    if not value or value != value.strip() or not value.isascii() or not value.isprintable():
        raise ValueError("what a header may say: printable ASCII without blanks around it")
    return text


HeaderValue = Annotated[
    SecretStr, AfterValidator(_header_value), in_words("the value of a header", writeOnly=True)
]


class Notify(OwnSection):
    """Who is told when the diagnosis changes, where no Prometheus does it."""

    webhook_url: WebhookUrl | None = Field(
        default=None,
        description=(
            "Where a JSON message is posted when something goes wrong and when it is well again; null tells "
            "nobody. Taken for a secret as a whole: whoever knows it may post there."
        ),
    )
    authorization: HeaderValue | None = Field(
        default=None,
        description="What the header `Authorization` of these messages says, such as `Bearer …`; null: none.",
    )
    cooldown_seconds: Annotated[Seconds, Field(ge=0, le=86_400)] = Field(
        default=300,
        description=(
            "Seconds before the same kind of problem is told of again, so that what comes and goes does not "
            "ring all night; what cannot be told is told of only after so long."
        ),
    )
    timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=300)] = Field(
        default=10,
        description="Seconds the receiver has to answer; later it counts as not told, and is told again.",
    )
