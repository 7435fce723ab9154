"""Every line, ours or a library's, leaves by one way: a JSON object with time, level, event, no password."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
import structlog

from dlq_handler.logs import RECORDS_A_MINUTE, Format, Level, RepeatLimit, configure_logging
from dlq_handler.options import SecretUrl

Lines = Callable[[], list[dict[str, object]]]
LIBRARIES = (
    "",
    "aio_pika",
    "aiormq",
    "aiormq.connection",
    "alembic",
    "asyncio",
    "httpcore",
    "httpx",
    "sqlalchemy",
    "uvicorn",
)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in LIBRARIES}
    filters = logging.getLogger("asyncio").filters[:]
    yield
    root.handlers[:] = handlers
    logging.getLogger("asyncio").filters[:] = filters
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def configured(level: Level = "info", format: Format = "json") -> tuple[io.StringIO, Lines]:  # noqa: A002  the setting's name
    stream = io.StringIO()
    configure_logging(level=level, format=format, stream=stream)
    return stream, lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_our_event_is_one_json_object_with_time_level_and_event_first() -> None:
    _, lines = configured()

    structlog.get_logger().info("dead_letter.decided", execution_id=7)

    (line,) = lines()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert (line["level"], line["event"], line["execution_id"]) == ("info", "dead_letter.decided", 7)
    assert str(line["timestamp"]).endswith("Z")


def test_what_is_below_the_level_is_not_written() -> None:
    stream, _ = configured(level="warning")

    structlog.get_logger().info("dead_letter.decided")
    logging.getLogger("another").info("x")

    assert stream.getvalue() == ""


def test_a_password_is_taken_out_of_every_value_however_deep() -> None:
    stream, lines = configured()

    try:
        raise ConnectionError("no way to amqp://u:S3CRET@h")
    except ConnectionError as error:
        structlog.get_logger().exception(
            "broker.lost",
            url="amqp://u:S3CRET@h",
            broker=SecretUrl("amqp://u:S3CRET@h"),
            error=error,
            nested={
                "urls": ["x amqp://u:S3CRET@h y"],
                "password": "S3CRET",
                "odd": {1: ("postgresql://u:S3CRET@h",)},
            },
        )

    assert "S3CRET" not in stream.getvalue()
    (line,) = lines()
    assert line["url"] == line["broker"] == "amqp://u:***@h"
    assert "ConnectionError: no way to amqp://u:***@h" in str(line["exception"])


def test_a_library_speaks_through_one_event_of_ours() -> None:
    _, lines = configured()

    logging.getLogger("sqlalchemy.pool").warning("lost %s", "postgresql://u:S3CRET@h/d")

    (line,) = lines()
    assert (line["event"], line["library"]) == ("library.reported", "sqlalchemy.pool")
    assert line["text"] == "lost postgresql://u:***@h/d"


@pytest.mark.parametrize(
    ("name", "level", "is_heard"),
    [
        ("alembic.runtime.migration", logging.INFO, False),
        ("uvicorn.access", logging.INFO, False),
        ("sqlalchemy.engine", logging.WARNING, True),
        ("aiormq.connection", logging.ERROR, False),
        ("aiormq.channel", logging.ERROR, True),
        ("aio_pika.robust_connection", logging.WARNING, False),
        ("asyncio", logging.ERROR, True),
    ],
)
def test_libraries_are_heard_only_when_they_matter(name: str, level: int, is_heard: bool) -> None:
    _, lines = configured(level="debug")

    logging.getLogger(name).log(level, "something")

    assert bool(lines()) is is_heard


@pytest.mark.parametrize(("error", "is_heard"), [(ConnectionResetError(), False), (ValueError(), True)])
def test_futures_that_died_with_their_connection_are_not_reported(error: Exception, is_heard: bool) -> None:
    _, lines = configured()

    logging.getLogger("asyncio").error("Future exception was never retrieved", exc_info=error)

    assert bool(lines()) is is_heard


def test_a_terminal_gets_lines_for_people() -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        configure_logging(level="info", format="auto", stream=stream)
        structlog.get_logger().info("replica.started", url="amqp://u:S3CRET@h")

    assert "\x1b[" in terminal.getvalue()
    assert "S3CRET" not in terminal.getvalue()
    assert json.loads(pipe.getvalue())["event"] == "replica.started"


def test_console_in_a_pipe_has_no_colour() -> None:
    stream, _ = configured(format="console")

    structlog.get_logger().info("replica.started", port=1)

    assert "replica.started" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_what_a_library_repeats_is_written_a_few_times_a_minute() -> None:
    _, lines = configured()

    for _ in range(1000):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").warning("Another one.")

    assert [line["text"] for line in lines()] == [
        *["Invalid HTTP request received."] * RECORDS_A_MINUTE,
        "Another one.",
    ]


def test_dropped_records_are_counted() -> None:
    now = 0.0
    limit = RepeatLimit(2, now=lambda: now)

    assert [limit.ask("a") for _ in range(5)] == [0, 0, None, None, None]
    assert limit.ask("b") == 0
    now = 60.0
    assert [limit.ask("a") for _ in range(3)] == [3, 0, None]


def test_kinds_of_records_are_forgotten_before_they_fill_memory() -> None:
    limit = RepeatLimit(1)

    for number in range(3000):
        limit.ask(number)

    assert limit.ask(2999) is None
    assert limit.ask(0) == 0
