"""`dlq-handler migrate` and `dlq-handler grants`: our own tables, and the rights the sidecar needs on the host's."""

import shlex
from typing import Annotated
from urllib.parse import unquote

import typer

from dlq_handler import compose
from dlq_handler.domain.broker_permissions import broker_permissions
from dlq_handler.settings import Settings
from dlq_handler.settings.urls import vhost_of
from dlq_handler.store import grants as store_grants
from dlq_handler.store import migrate as store_migrate
from dlq_handler.surface.cli.config import load_or_exit
from dlq_handler.surface.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.surface.cli.patience import wait_for
from dlq_handler.surface.cli.printing import print_json


def migrate(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Create or update our own tables. `run` does the same at its start; safe to repeat, and from many at once."""
    settings = load_or_exit(config).settings
    wait_for("updating our own tables", _migrate(settings))
    done = {"schema": settings.dlq_handler.schema_name, "version": store_migrate.head()}
    if output is Output.JSON:
        print_json(done)
    else:
        print(f"schema {done['schema']!r} is at version {done['version']}")


def grants(
    role: Annotated[str, typer.Option(help="Role that the sidecar connects as.")] = "dlq_handler",
    game_day: Annotated[
        bool, typer.Option("--game-day", help="And what `dlq-handler game-day` needs besides.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the least rights the sidecar needs, in PostgreSQL and in RabbitMQ. Changes nothing."""
    settings = load_or_exit(config).settings
    statements = store_grants.grant_statements(
        role,
        host_schema=settings.database.schema_name,
        own_schema=settings.dlq_handler.schema_name,
        marks_workers=settings.dlq_handler.worker.mark_inactive,
        holds_game_days=game_day,
    )
    permissions = broker_permissions(
        compose.blueprint(settings),
        intake_queues=(settings.dlq_handler.intake.queue, settings.dlq_handler.shadow.queue),
        rescues=settings.dlq_handler.worker.rescue,
        sends_canaries=settings.dlq_handler.canary.enabled,
        holds_game_days=game_day,
    )
    if output is Output.JSON:
        print_json({"postgresql": statements, "rabbitmq": permissions})
        return
    vhost = unquote(vhost_of(settings.broker_urls[0]))
    patterns = shlex.join((permissions.configure, permissions.write, permissions.read))
    print(
        "-- PostgreSQL: as a superuser, or as the owner of the database, of Attune's schema and of its tables."
    )
    print("\n".join(statements))
    print(
        "\n-- RabbitMQ, in a shell; the tag lets `topology check` and the watch of foreign consumers see all:"
    )
    print(f"-- rabbitmqctl set_permissions -p {shlex.quote(vhost)} USER {patterns}")
    print("-- rabbitmqctl set_user_tags USER monitoring")


async def _migrate(settings: Settings) -> None:
    async with compose.open_database(settings) as database:
        await store_migrate.upgrade(database)
