"""The last line of a command that ends because a server is unavailable."""

import subprocess
import sys

import pytest

from dlq_handler.cli.exits import with_action
from dlq_handler.errors import GrantsMissing, Unavailable, Unreachable


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (
            Unreachable("database", "connect: connection refused"),
            ". Start PostgreSQL, or correct database.url.",
        ),
        (Unavailable("broker", "consume: connection refused"), ""),
        (GrantsMissing("permission denied"), ""),
    ],
)
def test_an_unreachable_database_names_the_action(error: Unavailable, action: str) -> None:
    assert with_action(error) == f"{error}{action}"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_library_of_the_servers(option: str) -> None:
    """They would take a second of CPU: a shell that completes, and an operator who looks around, wait for it."""
    program = (
        "import atexit, sys; from dlq_handler.__main__ import main;"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, option], capture_output=True, text=True, check=True, timeout=60
    )
    imported = set(done.stderr.split())
    heavy = {
        "aio_pika",
        "alembic",
        "asyncio",
        "fastapi",
        "pydantic",
        "rich",
        "sqlalchemy",
        "structlog",
        "uvicorn",
        "yaml",
    }
    assert "dlq_handler.main" in imported
    assert not heavy & imported


@pytest.mark.parametrize("command", [["run", "--help"], ["config", "check"]])
def test_a_command_imports_no_library_for_color(command: list[str]) -> None:
    """structlog and httpx would, for output that dlq-handler does not use: 5 MB of each replica."""
    program = "import sys; from dlq_handler.main import main; sys.argv[0] = 'dlq-handler'; main()"
    program = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {program}"
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False, timeout=60
    )
    imported = set(done.stdout.split())
    assert "structlog" in imported
    assert not {"rich", "pygments"} & imported


def test_a_replica_without_visitors_imports_no_fastapi() -> None:
    """Nor the routes of the API: 10 MB. They are imported at the first request to the ui."""
    program = "import sys, dlq_handler.run; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    imported = set(done.stdout.split())
    assert "dlq_handler.ui" in imported
    assert not {"fastapi", "sse_starlette", "dlq_handler.api.router"} & imported


def test_the_settings_import_no_library_of_the_servers() -> None:
    """Every command loads them. Values that a section needs are in options.py of a room, not beside its services."""
    program = "import sys, dlq_handler.settings; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    heavy = {
        "aio_pika",
        "aiormq",
        "alembic",
        "asyncpg",
        "fastapi",
        "httpx",
        "prometheus_client",
        "sqlalchemy",
        "structlog",
    }
    assert not heavy & set(done.stdout.split())
