"""The command `dlq-handler`: nouns, then verbs. Exit codes: cli/exits.py."""

import asyncio
import os
import signal
import sys
from typing import Annotated

import structlog
import typer

from dlq_handler import __version__
from dlq_handler.cli import audit, brake, canary, config, executions, letters, topology, workers
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.database import grants, migrate
from dlq_handler.cli.doctor import doctor
from dlq_handler.cli.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_SERVICE_ENDED, EXIT_UNAVAILABLE
from dlq_handler.cli.health import check_health
from dlq_handler.cli.options import ConfigOption
from dlq_handler.cli.printing import print_error
from dlq_handler.cli.status import status
from dlq_handler.diagnosis.doctor_database_lines import DATABASE_FIX
from dlq_handler.errors import (
    Contended,
    RowRejected,
    ServiceEnded,
    StartTimedOut,
    Unavailable,
    UnsupportedLibrary,
)
from dlq_handler.logs import configure_logging
from dlq_handler.settings import Settings

log = structlog.get_logger()

app = typer.Typer(
    name="dlq-handler",
    help="Ends executions whose worker is gone, and announces it, beside an unmodified Attune.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(topology.app, name="topology")
app.add_typer(letters.app, name="letters")
app.add_typer(executions.app, name="executions")
app.add_typer(brake.app, name="brake")
app.add_typer(workers.app, name="workers")
app.add_typer(canary.app, name="canary")
app.add_typer(audit.app, name="audit")
app.add_typer(config.app, name="config")
app.command()(migrate)
app.command()(grants)
app.command()(doctor)
app.command()(status)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    # On stderr: what a command prints on stdout may be read by a program. `run` configures its own.
    configure_logging(level="warning", format="auto", stream=sys.stderr)


@app.command()
def run(config: ConfigOption = None) -> None:
    """Run the sidecar until SIGTERM or SIGINT. A second signal ends it at once; nothing is lost either way."""
    loaded = load_or_exit(config)
    own = loaded.settings.dlq_handler
    configure_logging(level=own.log.level, format=own.log.format)
    structlog.contextvars.bind_contextvars(replica=loaded.settings.replica)
    if own.shadow.enabled:
        # On every line: what it tells of letters is what would have been done.
        structlog.contextvars.bind_contextvars(shadow=True)
    for warning in loaded.warnings:
        log.warning("settings.doubted", warning=warning)
    raise typer.Exit(asyncio.run(_run(loaded.settings)))


@app.command()
def health(config: ConfigOption = None) -> None:
    """Check that every loop of the sidecar in this container turns (exit code 0 or 1). Servers: see /readyz."""
    raise typer.Exit(check_health(config))


async def _run(settings: Settings) -> int:
    from dlq_handler.app import Sidecar  # noqa: PLC0415  no other command serves HTTP, and importing it is slow
    from dlq_handler.web.listener import ListenerRefused  # noqa: PLC0415  brings uvicorn, which only `run` needs

    stop = asyncio.Event()
    _listen_for_signals(stop)
    try:
        sidecar = Sidecar(settings)
    except ListenerRefused as refused:
        log.error(
            "listener.refused",
            host=refused.host,
            port=refused.port,
            error=refused.explanation,
            setting=refused.setting,
        )
        return EXIT_CONFIG
    except UnsupportedLibrary as error:
        log.error(
            "library.unsupported",
            library=error.library,
            version=error.version,
            missing=error.missing,
            required=error.required,
        )
        return error.exit_code
    try:
        await sidecar.run(stop)
    except* StartTimedOut as group:
        waited_for = "; ".join(str(one) for one in group.exceptions)
        log.error("start.given_up", error=waited_for, setting="dlq_handler.startup.wait_seconds")
        return_code = EXIT_UNAVAILABLE
    except* ServiceEnded:
        # Logged when it happened, with its trace.
        return_code = EXIT_SERVICE_ENDED
    except* TimeoutError:
        log.error("sidecar.cut_short", setting="dlq_handler.grace.shutdown_seconds")
        return_code = EXIT_FAILED
    else:
        return_code = 0
    return return_code


def _listen_for_signals(stop: asyncio.Event) -> None:
    def heard(number: int) -> None:
        if stop.is_set():
            # Whoever sends a second signal does not want to wait. Unsettled letters are redelivered.
            os._exit(128 + number)
        log.info("signal.received", signal=signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)


def with_action(error: Exception) -> str:
    """The error, and for an unreachable database the action that `status` prints too."""
    if (
        isinstance(error, Unavailable)
        and error.component == "database"
        and error.what.startswith("unreachable")
    ):
        return f"{error}; {DATABASE_FIX}"
    return str(error)


def main(typed: str | None = None) -> None:
    """Expected trouble ends in one line on stderr and an exit code, never in a trace.

    `typed`: what whoever asks typed instead of the program's name, for its help.
    """
    try:
        app(prog_name=typed)
    except (Unavailable, Contended) as error:
        print_error(with_action(error))
        sys.exit(EXIT_UNAVAILABLE)
    except RowRejected as error:
        print_error(f"the database refused it: {error}")
        sys.exit(EXIT_FAILED)
    except (UnsupportedLibrary, ExceptionGroup) as error:
        unsupported = _find_unsupported(error)
        if unsupported is None:
            raise
        print_error(str(unsupported))
        sys.exit(unsupported.exit_code)


def _find_unsupported(error: Exception) -> UnsupportedLibrary | None:
    """Some commands ask database and broker at once, so it may be one of several errors."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_find_unsupported, error.exceptions)), None)
    return error if isinstance(error, UnsupportedLibrary) else None
