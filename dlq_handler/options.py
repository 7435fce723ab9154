"""The value types of settings: whole numbers, seconds, names, patterns.

Each states what is allowed in words of an operator.
"""

import json
import re
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Secret,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from dlq_handler.masking import masked_url

POSTGRES_NAME_BYTES = 63
AMQP_NAME_BYTES = 255


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        # YAML's `yes`, `on` and `true` are booleans and Python's booleans are numbers: `port: yes` would
        # become port 1.
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("not_a_bool", "a number or text, not true or false")
        return value


class OwnSection(_Section):
    """A part of `dlq_handler:`.

    An unknown key is an error: a misspelt setting must not be ignored in silence.
    """

    model_config = ConfigDict(extra="forbid")


class SharedSection(_Section):
    """A section that belongs to Attune. dlq-handler reads a few keys of it and ignores the others."""

    model_config = ConfigDict(extra="ignore")


def in_words(wanted: str, **more: Any) -> WithJsonSchema:
    """What the configuration reference lists as allowed, where the type alone does not show it."""
    return WithJsonSchema({"type": "string", "wanted": wanted, **more})


Seconds = Annotated[float, Field(allow_inf_nan=False)]


def _schema_name(name: str) -> str:
    # Plain names only: then a name means the same with and without quotes, in the product's SQL, in psql and in a
    # search_path.
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or len(name) > POSTGRES_NAME_BYTES:
        raise ValueError(
            "a plain PostgreSQL name: lower-case letters, digits and _, at most 63, no digit first"
        )
    if name.startswith("pg_") or name == "information_schema":
        raise ValueError("a schema that is not PostgreSQL's own (pg_*, information_schema)")
    return name


def _amqp_name(name: str) -> str:
    if not name or len(name.encode()) > AMQP_NAME_BYTES or not name.isprintable():
        raise ValueError("a name of 1 to 255 bytes without control characters")
    return name


def _queue_name(name: str) -> str:
    if name.startswith("amq."):
        raise ValueError("a name that does not start with amq. (RabbitMQ keeps those for itself)")
    return _amqp_name(name)


def _id_pattern(pattern: str) -> str:
    if pattern.count("{id}") != 1 or "{" in pattern.replace("{id}", "") or "}" in pattern.replace("{id}", ""):
        raise ValueError("a name with {id} in it exactly once, where the worker's id goes")
    return _queue_name(pattern)


def _listed(value: Any) -> Any:
    """A list out of one string: a JSON array, or items between commas, blanks or line breaks."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(
                'a JSON array such as ["amqp://a", "amqp://b"], or items between commas'
            ) from None
    return [item for item in re.split(r"[,\s]+", value) if item]


SchemaName = Annotated[str, AfterValidator(_schema_name), in_words("a plain PostgreSQL name")]
AmqpName = Annotated[str, AfterValidator(_amqp_name), in_words("a name of 1 to 255 bytes")]
QueueName = Annotated[str, AfterValidator(_queue_name), in_words("a queue name of 1 to 255 bytes")]
IdPattern = Annotated[str, AfterValidator(_id_pattern), in_words("a name with {id} in it once")]
Listed = BeforeValidator(_listed)


class SecretUrl(Secret[str]):
    """A URL with credentials in it. `redacted()` is safe to print."""

    def _display(self) -> str:
        return self.redacted()

    def redacted(self) -> str:
        return masked_url(self.get_secret_value())


def split_url(url: SecretUrl, schemes: tuple[str, ...], example: str) -> SplitResult:
    wanted = f"a URL such as {example}"
    text = url.get_secret_value()
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"{wanted}, without blanks or line breaks")
    try:
        parts = urlsplit(text)
        for host in _hosts(parts):
            if urlsplit(f"//{host}").port == 0:
                raise ValueError
    except ValueError:
        raise ValueError(
            f"{wanted}, with a port from 1 to 65535 and special characters percent-encoded"
        ) from None
    if parts.scheme not in schemes:
        raise ValueError(f"{wanted}; the scheme is {' or '.join(schemes)}")
    if "@" in parts.path or parts.fragment:
        # An unescaped `/` or `#` in the password ends the host part early, and names another host.
        raise ValueError(f"{wanted}, with special characters of user and password percent-encoded")
    return parts


def with_one_host(url: SecretUrl, schemes: tuple[str, ...], example: str) -> SecretUrl:
    hosts = _hosts(split_url(url, schemes, example))
    if len(hosts) != 1 or not urlsplit(f"//{hosts[0]}").hostname:
        raise ValueError(f"a URL such as {example}, with one host")
    return url


def _hosts(parts: SplitResult) -> list[str]:
    return parts.netloc.rpartition("@")[2].split(",")


SECRET_URL = in_words("a URL", writeOnly=True)
