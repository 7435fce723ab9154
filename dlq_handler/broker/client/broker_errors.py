"""Translate what aio-pika and aiormq raise. Beyond this module a lost or refusing broker is `Unavailable`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelPreconditionFailed,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from dlq_handler.errors import BrokerRightsMissing, Unavailable
from dlq_handler.health import beat
from dlq_handler.tasks import StopCheck

# The answers of a broker that callers outside of broker/ distinguish.
__all__ = ["ChannelAccessRefused", "ChannelPreconditionFailed", "broker_errors"]


@asynccontextmanager
async def broker_errors(doing: str) -> AsyncIterator[None]:
    """Raise `Unavailable` for each way in which the libraries report a lost or refusing broker."""
    stop = StopCheck()
    beat()
    try:
        yield
        beat()
    except asyncio.CancelledError as error:
        # On a half-open connection the library cancels the call by itself.
        if stop.is_stop:
            raise
        raise Unavailable("broker", f"{doing}: the connection was lost") from error
    except ChannelAccessRefused as error:
        raise BrokerRightsMissing(f"{doing}: {_explain(error)}") from error
    except (AMQPError, OSError, TimeoutError, RuntimeError, EOFError, StopAsyncIteration) as error:
        # aiormq raises RuntimeError for "connection closed" and "channel closed". The last two classes escape from it
        # when the peer closes the socket during the handshake.
        raise Unavailable("broker", f"{doing}: {_explain(error)}") from error
    except Exception as error:
        # aiormq throws the bare class Exception into waiting calls when a connection ends without a reason.
        if type(error) is not Exception:
            raise
        raise Unavailable("broker", f"{doing}: the connection was lost") from error


def _explain(error: BaseException) -> str:
    if isinstance(error, InvalidFrameError) and "Connection.Close" in str(error):
        # aiormq keeps nothing else of the broker's answer to opening the vhost.
        return "the broker refuses this vhost: it does not exist, or the user has no rights in it (message_queue.url)"
    if isinstance(error, ProbableAuthenticationError):
        return "the broker refuses this user or its password (message_queue.url)"
    if isinstance(error, ConnectionRefusedError) or isinstance(error.__cause__, ConnectionRefusedError):
        return "nothing listens there. Start the broker, or correct message_queue.url"
    text = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
