"""Run one replica: `dlq-handler run`, and `health`, which container runtimes call.

The listeners end last, so that probes are answered until everything else has ended.
"""

import asyncio
import os
import signal

import structlog
import typer

from dlq_handler import __version__
from dlq_handler.app import Sidecar
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_SERVICE_ENDED, EXIT_UNAVAILABLE
from dlq_handler.cli.health import check_health
from dlq_handler.cli.options import ConfigOption
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.errors import ServiceEnded, StartTimedOut, UnsupportedLibrary
from dlq_handler.logs import configure_logging
from dlq_handler.running import running_services, wait_until_available
from dlq_handler.settings import Settings
from dlq_handler.tasks import task_group
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
        log.warning("settings.warning", warning=warning)
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
        await run_replica(sidecar, stop)
    except* StartTimedOut as group:
        waited_for = "; ".join(str(one) for one in group.exceptions)
        log.error("start.timed_out", error=waited_for, setting="dlq_handler.startup.wait_seconds")
        return_code = EXIT_UNAVAILABLE
    except* ServiceEnded:
        # Logged when it happened, with its trace.
        return_code = EXIT_SERVICE_ENDED
    except* TimeoutError:
        log.error("sidecar.stop_timed_out", setting="dlq_handler.grace.shutdown_seconds")
        return_code = EXIT_FAILED
    else:
        return_code = 0
    return return_code


async def run_replica(sidecar: Sidecar, stop: asyncio.Event) -> None:
    """Returns when everything has ended in good order."""
    ops, ui = sidecar.listeners.ops, sidecar.listeners.ui
    log.info("replica.started", version=__version__, http_port=ops.port, ui_port=ui.port if ui else None)
    if sidecar.settings.is_shadow:
        _report_shadow(sidecar)
    rest_done = asyncio.Event()
    async with running_services(stop) as services:
        services.start(sidecar.web, rest_done)
        try:
            await _prepare(sidecar, services.ending)
            # Stopped while it waited for its servers: no work was taken, so there is none to finish.
            if not services.ending.is_set():
                sidecar.readiness.liveness.watch()
                await services.serve(
                    first_to_end=sidecar.services_that_end_first(),
                    last_to_end=sidecar.services_that_end_last(),
                    grace_seconds=sidecar.settings.dlq_handler.grace.shutdown_seconds,
                )
        finally:
            rest_done.set()
            await _close(sidecar)
    log.info("replica.stopped")


def _report_shadow(sidecar: Sidecar) -> None:
    queue = sidecar.settings.dlq_handler.shadow.queue
    log.warning("shadow.started", queue=queue, setting="dlq_handler.shadow.enabled")
    sidecar.metrics.shadow.set(1)
    sidecar.readiness.note("shadow", f"dry run: decides on copies from {queue}, changes nothing")


async def _prepare(sidecar: Sidecar, stop: asyncio.Event) -> None:
    """Check what every service relies on, in the order in which it is needed, before anything is consumed."""
    wait_until = monotonic_seconds() + sidecar.settings.dlq_handler.startup.wait_seconds
    await wait_until_available(lambda: migrate.upgrade(sidecar.database), wait_until, stop)
    # Bound before ready: a dead letter whose key is not bound yet is lost without a trace.
    await wait_until_available(sidecar.keeper.tick, wait_until, stop)


async def _close(sidecar: Sidecar) -> None:
    """Side by side: each may wait seconds for a server that does not answer, and SIGTERM allows for one wait."""
    async with task_group() as closing:
        for close in (sidecar.publisher.close, sidecar.link.close, sidecar.database.dispose):
            closing.create_task(close())


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
