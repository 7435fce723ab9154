"""Check that the installed AMQP libraries have the internals that this folder relies on.

pyproject.toml bounds their versions, but an installation may ignore that. Without this check such a version would fail
later and less clearly, or would leave dead letters unread. It checks names, parameters and the attributes that code
uses. It changes nothing, and imports the libraries only when it is called.
"""

import inspect
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

from dlq_handler.errors import UnsupportedLibrary


@dataclass(frozen=True, slots=True)
class Internal:
    """One part of a library that is relied on."""

    module: str
    path: str
    takes: tuple[str, ...] = ()
    """Parameters that it must have."""
    uses: tuple[str, ...] = ()
    """Names that its code must use. Attributes of instances show only there."""
    holds: tuple[str, ...] = ()
    """Keys or items that it must hold."""
    begins_with: tuple[str, ...] = ()
    """Items that it must begin with, in this order."""

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"

    @property
    def library(self) -> str:
        return self.module.partition(".")[0].replace("_", "-")


INTERNALS = (
    # connection.py: the socket is kept by a transport factory that goes through `kwargs` to aiormq.
    Internal("aio_pika.connection", "Connection.__init__", uses=("kwargs", "transport")),
    Internal("aio_pika.connection", "Connection.connect", uses=("kwargs", "transport")),
    Internal("aio_pika.abc", "UnderlayConnection", takes=("connection",)),
    Internal(
        "aiormq.connection",
        "Connection.__init__",
        takes=("transport_factory",),
        uses=("_transport_factory", "channels", "write_queue"),
    ),
    Internal("aiormq.connection", "Connection.connect", uses=("_transport_factory", "create")),
    Internal("aiormq.connection", "TransportFactory.create", takes=("url",)),
    Internal("aiormq.connection", "TCPTransportFactory.create", takes=("url",)),
    Internal("aiormq.connection", "TLSTransportFactory.create", takes=("url",)),
    # connection.py: `ready` waits while the broker blocks the connection.
    Internal(
        "aiormq.connection",
        "Connection.ready",
        uses=("connected", "_Connection__connection_unblocked", "wait"),
    ),
    # direct_channel.py: `frames` is replaced, and both sides read it on every turn.
    Internal("aiormq.connection", "Connection._Connection__reader", uses=("channels", "frames", "put")),
    Internal("aiormq.channel", "Channel._get_frame", uses=("frames", "get")),
    Internal(
        "aiormq.channel",
        "Channel.__init__",
        takes=("connector", "number", "publisher_confirms"),
        uses=("frames", "max_content_size", "number", "on_consumer_cancel_callbacks", "write_queue"),
    ),
    Internal(
        "aiormq.channel",
        "Channel._reader",
        uses=("_get_frame", "_on_deliver_frame", "_on_return_frame", "_on_confirm_frame"),
    ),
    Internal("aiormq.channel", "Channel._on_deliver_frame", takes=("frame",)),
    Internal("aiormq.channel", "Channel._on_return_frame", takes=("frame",)),
    Internal("aiormq.channel", "Channel._on_confirm_frame", takes=("frame",)),
    Internal("aiormq.channel", "Channel._on_cancel_frame", uses=("on_consumer_cancel_callbacks",)),
    Internal("aiormq.channel", "Channel.open"),
    Internal(
        "aiormq.channel",
        "Channel.basic_consume",
        takes=("queue", "consumer_callback", "arguments", "consumer_tag"),
    ),
    Internal("aiormq.base", "Base.create_future"),
    Internal("aiormq.base", "Base.closing"),
    Internal("aiormq.abc", "ChannelFrame", takes=("payload", "should_close", "drain_future")),
    # decoders.py: methods and a table of decoders are replaced.
    Internal("pamqp.header", "ContentHeader.unmarshal", takes=("data",)),
    Internal("pamqp.header", "ContentHeader.__init__", uses=("weight", "body_size", "properties")),
    Internal("pamqp.frame", "_unmarshal_header_frame", uses=("ContentHeader", "unmarshal")),
    Internal("pamqp.frame", "_unmarshal_method_frame", uses=("INDEX_MAPPING", "unmarshal")),
    Internal("pamqp.commands", "Basic.Deliver.unmarshal", takes=("data",)),
    Internal(
        "pamqp.commands",
        "Basic.Deliver.__slots__",
        begins_with=("consumer_tag", "delivery_tag", "redelivered", "exchange", "routing_key"),
    ),
    Internal("pamqp.commands", "Basic.Properties.attributes"),
    Internal("pamqp.base", "Frame.unmarshal", takes=("data",)),
    Internal("pamqp.commands", "Connection.Tune.__slots__", holds=("frame_max",)),
    Internal("pamqp.decode", "METHODS", holds=("table",)),
    Internal("pamqp.decode", "by_type", uses=("METHODS",)),
    Internal("pamqp.decode", "field_table", takes=("value",)),
)


def assert_supported() -> None:
    """Raises `UnsupportedLibrary`, which names the library, its version, and the first missing part."""
    for internal in INTERNALS:
        if not is_there(internal):
            raise UnsupportedLibrary(
                internal.library,
                version=installed_version(internal.library),
                missing=str(internal),
                required=required_version(internal.library),
            )


def is_there(internal: Internal) -> bool:
    """Whether the installed library has it, in the shape that is relied on."""
    try:
        part: Any = import_module(internal.module)
        for name in internal.path.split("."):
            part = getattr(part, name)
        return (
            (not internal.takes or set(internal.takes) <= set(inspect.signature(part).parameters))
            and (not internal.uses or set(internal.uses) <= set(inspect.unwrap(part).__code__.co_names))
            and all(item in part for item in internal.holds)
            and (not internal.begins_with or tuple(part)[: len(internal.begins_with)] == internal.begins_with)
        )
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def installed_version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def required_version(library: str) -> str:
    """The requirement of the installed dlq-handler, for example 'aiormq<7.3,>=7.2'."""
    try:
        requirements = metadata.requires("dlq-handler") or []
    except metadata.PackageNotFoundError:
        requirements = []
    return next((one for one in requirements if one.startswith(library)), library)
