"""Configure logging, once, at start: one event per line, JSON for machines, console for people.

Events of dlq-handler (structlog) and the libraries' (stdlib logging) leave by the same way: UTC time, level, event,
no password. Libraries log from WARNING on; dlq-handler logs connections itself.
"""

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from dlq_handler.clock import monotonic_seconds
from dlq_handler.masking import MASK, is_secret_name, without_passwords

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

# A lost connection makes the broker's client log several errors with tracebacks, again on every attempt to
# come back; broker/client/connection.py logs it once, with the action. A failing callback is logged: that is a bug.
_LEAST_LEVELS = {
    "aio_pika": logging.ERROR,
    "aiormq": logging.ERROR,
    "aiormq.connection": logging.CRITICAL,
    "alembic": logging.WARNING,
    "asyncio": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "sqlalchemy": logging.WARNING,
    "uvicorn": logging.WARNING,
}

_DEEPEST = 6

RECORDS_A_MINUTE = 5
# Keys that are remembered: what clients send may be part of one.
_MOST_KEYS = 1000


class RepeatLimit:
    """At most so many records a minute of each kind, for those that clients can cause. Used by several threads."""

    def __init__(
        self, a_minute: int = RECORDS_A_MINUTE, *, now: Callable[[], float] = monotonic_seconds
    ) -> None:
        self._a_minute, self._now, self._lock = a_minute, now, Lock()
        # Of each key: when its minute began, the records in it, those that were dropped since the last one written.
        self._seen: OrderedDict[Hashable, tuple[float, int, int]] = OrderedDict()

    def ask(self, key: Hashable) -> int | None:
        """None: do not write it. Otherwise the number of records of this kind that were dropped since the last one."""
        with self._lock:
            now = self._now()
            began, written, dropped = self._seen.pop(key, (now, 0, 0))
            if now - began >= 60:
                began, written = now, 0
            is_dropped = written >= self._a_minute
            self._seen[key] = (began, written, dropped + 1) if is_dropped else (began, written + 1, 0)
            while len(self._seen) > _MOST_KEYS:
                self._seen.popitem(last=False)
            return None if is_dropped else dropped


def configure_logging(*, level: Level, format: Format, stream: TextIO | None = None) -> None:  # noqa: A002  the setting's name
    """Replaces whatever was configured before. `stream` is stdout unless given."""
    out = sys.stdout if stream is None else stream
    as_console = format == "console" or (format == "auto" and out.isatty())
    stamp: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[Processor] = [
        structlog.processors.format_exc_info,
        redact_event,  # after the traceback has become text
        _console(out) if as_console else structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=[*stamp, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Straight to the stream: by way of stdlib logging a line costs twice as much, and letters are many.
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,  # else a second call would not reach loggers used before
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*stamp, structlog.stdlib.ExtraAdder(), _name_library],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(capture=True)
    _quieten_libraries()


def _console(out: TextIO) -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def _quieten_libraries() -> None:
    for name, level in _LEAST_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("asyncio").addFilter(_is_no_lost_connection)
    for name in ("asyncio", "uvicorn.error"):
        library = logging.getLogger(name)
        library.filters[:] = [one for one in library.filters if not isinstance(one, _Floods)]
        library.addFilter(_Floods())
    # uvicorn may have given its loggers handlers of their own, which would bypass these.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def _is_no_lost_connection(record: logging.LogRecord) -> bool:
    """Drops "exception was never retrieved" for futures inside the client that died with their connection."""
    error = record.exc_info[1] if record.exc_info else None
    by_client = type(error).__module__.partition(".")[0] in {"aiormq", "aio_pika"}
    return not (by_client or isinstance(error, ConnectionError))


class _Floods(logging.Filter):
    """Drops what a library repeats all the time: each client can cause a record with each request."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = RepeatLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        dropped = self._repeats.ask((record.levelno, str(record.msg).partition("\n")[0]))
        if dropped:
            record.msg = f"{record.msg} ({dropped} more like this since the last record)"
        return dropped is not None


def _name_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A library's sentence becomes the text of one event of dlq-handler: event names are a closed list."""
    record: logging.LogRecord = event["_record"]
    event["text"] = event["event"]
    event["event"] = "library.reported"
    event["library"] = record.name
    return event


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The last processor before a line is written. Code should log no secret; this masks one that is logged."""
    first = {name: event[name] for name in ("timestamp", "level", "event") if name in event}
    return {name: _redacted(name, value, 0) for name, value in {**first, **event}.items()}


def _redacted(name: str, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return without_passwords(value)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {key: _redacted(str(key), item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and depth < _DEEPEST:
        return [_redacted(name, item, depth + 1) for item in value]
    return without_passwords(
        str(value)
    )  # exceptions, paths, anything the renderer would turn into text itself
