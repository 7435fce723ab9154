"""`dlq-handler canary`: send canaries through the dead-letter route now, and report each stage."""

from datetime import timedelta
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED, EXIT_UNKNOWN
from dlq_handler.cli.open import open_canary_run
from dlq_handler.cli.options import ConfigOption, Output, OutputOption, read_duration
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, print_progress, print_table, printable, shown
from dlq_handler.settings import Settings
from dlq_handler.topology.canary_run import CanaryRunReport, RunConclusion, RunProblem, cannot_run

app = typer.Typer(no_args_is_help=True)

EXIT_CODES = {
    RunConclusion.ARRIVED: EXIT_FINE,
    RunConclusion.NOT_ARRIVED: EXIT_FAILED,
    RunConclusion.UNKNOWN: EXIT_UNKNOWN,
}

# Half of what the canary queue holds: the replicas send canaries through it too.
MOST_CANARIES = 500


# Without a callback, typer makes a group with one command that command.
@app.callback()
def _group() -> None:
    pass


@app.command()
def run(
    count: Annotated[
        int, typer.Option("--count", min=1, max=MOST_CANARIES, help="Number of canaries to send.")
    ] = 20,
    limit: Annotated[
        timedelta | None,
        typer.Option(
            "--limit",
            parser=read_duration,
            metavar="30s",
            help="Maximum time from expiry to receipt. Default: dlq_handler.canary.limit_seconds.",
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Send canaries through the dead-letter route, and report when each was confirmed, expired and received.

    Exit 0: all arrived within the limit. Exit 1: at least one did not. Exit 2: unknown, or no canary could be sent. A
    canary carries the routing key of a registered worker and no execution: it is neither recorded nor counted as a dead
    letter. Needs a running replica.
    """
    settings = load_or_exit(config).settings
    limit_seconds = settings.dlq_handler.canary.limit_seconds if limit is None else limit.total_seconds()
    report = _disabled(settings, limit_seconds)
    if report is None:
        try:
            report = wait_for("following the canaries", _run(settings, count, limit_seconds))
        except KeyboardInterrupt:
            print_error(
                "Interrupted. Canaries that were sent expire; replicas acknowledge them without a record."
            )
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if output is Output.JSON:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(EXIT_CODES[report.conclusion])


def _disabled(settings: Settings, limit_seconds: float) -> CanaryRunReport | None:
    queue = settings.blueprint.intake_queue
    if not settings.blueprint.has_intake:
        return cannot_run(
            RunProblem.DISABLED,
            "dlq-handler receives no dead letters: message_queue.rabbitmq.dead_letter.enabled is false.",
            queue=queue,
            limit_seconds=limit_seconds,
            action="Set message_queue.rabbitmq.dead_letter.enabled to true.",
        )
    if not settings.dlq_handler.canary.enabled:
        return cannot_run(
            RunProblem.DISABLED,
            "Canaries are disabled: dlq_handler.canary.enabled is false.",
            queue=queue,
            limit_seconds=limit_seconds,
        )
    return None


async def _run(settings: Settings, count: int, limit_seconds: float) -> CanaryRunReport:
    async with open_canary_run(settings, limit_seconds=limit_seconds, say=print_progress) as opened:
        return await opened.run(count)


def _print(report: CanaryRunReport) -> None:
    if report.canaries:
        print_table(
            ("WORKER", "STAGE", "CONFIRMED", "EXPIRED", "RECEIVED", "REPLICA", "PROBLEM"),
            [
                (
                    one.worker_id,
                    one.stage,
                    _seconds(one.confirmed_seconds),
                    _seconds(one.expired_seconds),
                    _seconds(one.received_seconds),
                    one.received_by,
                    one.problem,
                )
                for one in report.canaries
            ],
        )
        print(f"\nsent at {shown(report.sent_at)}; times are seconds since then, by the database clock")
    print(printable(f"conclusion: {report.conclusion}: {report.explanation}"))
    if report.action is not None:
        print(printable(f"next: {report.action}"))


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"
