"""The commands that concern a running replica: `dlq-handler run`, and `health`, which container runtimes call."""

import asyncio
import os
import signal

import structlog
import typer

from dlq_handler.app import Sidecar
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_SERVICE_ENDED, EXIT_UNAVAILABLE
from dlq_handler.cli.health import check_health
from dlq_handler.cli.options import ConfigOption
from dlq_handler.errors import ServiceEnded, StartTimedOut, UnsupportedLibrary
from dlq_handler.logs import configure_logging
from dlq_handler.settings import Settings
from dlq_handler.web.listener import ListenerRefused

log = structlog.get_logger()


def run(config: ConfigOption = None) -> None:
    """Run a replica until SIGTERM or SIGINT. A second signal ends it at once; nothing is lost either way."""
    loaded = load_or_exit(config)
    own = loaded.settings.dlq_handler
    configure_logging(level=own.log.level, format=own.log.format)
    structlog.contextvars.bind_contextvars(replica=loaded.settings.replica)
    if own.shadow.enabled:
        # On every line: a decision that is logged is what would have been done.
        structlog.contextvars.bind_contextvars(shadow=True)
    for warning in loaded.warnings:
        log.warning("settings.doubted", warning=warning)
    raise typer.Exit(asyncio.run(_run(loaded.settings)))


def health(config: ConfigOption = None) -> None:
    """Check that every loop of the replica in this container runs (exit code 0 or 1). For the servers see /readyz."""
    raise typer.Exit(check_health(config))


async def _run(settings: Settings) -> int:
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
    def handle(number: int) -> None:
        if stop.is_set():
            # A second signal means now. The broker delivers unacknowledged dead letters again.
            os._exit(128 + number)
        log.info("signal.received", signal=signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
