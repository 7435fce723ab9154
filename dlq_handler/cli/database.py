"""`dlq-handler migrate` and `dlq-handler grants`: the tables of dlq-handler, and the rights that it needs."""

import shlex
from collections.abc import Collection
from typing import Annotated
from urllib.parse import unquote

import typer

from dlq_handler.broker.options import vhost_of
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED
from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.patience import wait_for
from dlq_handler.cli.printing import print_error, print_json, printable
from dlq_handler.database import migrate as store_migrate
from dlq_handler.database.migrate import SchemaVersion
from dlq_handler.database.postgres_values import quoted
from dlq_handler.errors import Unavailable
from dlq_handler.host.grants_sql import FoundDatabase, read_database
from dlq_handler.host.rights import Feature, Need, Rights, attune_rights, host_grants, own_grants
from dlq_handler.lifecycle.broker_rights import queues_of_features
from dlq_handler.settings import Settings
from dlq_handler.settings.databases import open_database
from dlq_handler.topology.blueprint import BrokerPermissions, broker_permissions


def migrate(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Create or update dlq-handler's tables. `run` does so at its start. Safe to repeat, also by many at once."""
    settings = load_or_exit(config).settings
    found = wait_for("updating the tables of dlq-handler", _migrate(settings))
    done = {"schema": settings.dlq_handler.schema_name, "version": found.version, "note": found.note}
    if output is Output.JSON:
        print_json(done)
    else:
        print(f"schema {done['schema']!r} is at version {done['version']}")
        if found.note:
            print(found.note)


def grants(
    role: Annotated[str, typer.Option(help="Database role that dlq-handler connects as.")] = "dlq_handler",
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Connect to no database: print the rights for Attune's known schema."),
    ] = False,
    feature: Annotated[
        Feature | None,
        typer.Option(
            help="Include the rights of a feature that is off by default: `lifecycle` (flows and worker queues) or "
            "`orphans` (only queues of workers)."
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the least rights that dlq-handler needs, in PostgreSQL and in RabbitMQ. Changes nothing.

    The SQL fits the database that the settings name: its tables, columns, sequences and triggers are read. Any role
    that can connect may read them.
    """
    settings = load_or_exit(config).settings
    features = {*settings.features} | ({feature} if feature is not None else set())
    rights, notes = _attune_rights(settings, features) if offline else _read_rights(settings, role, features)
    statements = [*host_grants(role, rights), *own_grants(role, settings.dlq_handler.schema_name)]
    permissions = _broker_permissions(settings, features)
    if output is Output.JSON:
        print_json({"postgresql": statements, "rabbitmq": permissions, "is_offline": offline, "notes": notes})
        return
    vhost = unquote(vhost_of(settings.broker_urls[0]))
    patterns = shlex.join((permissions.configure, permissions.write, permissions.read))
    for note in notes:
        # A name in it may hold a line break, which would end the comment.
        print(f"-- {printable(note)}")
    print("-- Run as a superuser, or as the owner of the database, of Attune's schema and of its tables.")
    print("\n".join(statements))
    print(
        "\n-- RabbitMQ, in a shell. USER is a user of dlq-handler's own: set_permissions replaces all its rights."
    )
    print(
        "-- The rights are sufficient for shadow mode and for live mode. The tag gives access to the management API."
    )
    print(f"-- rabbitmqctl set_permissions -p {shlex.quote(vhost)} USER {patterns}")
    print("-- rabbitmqctl set_user_tags USER monitoring")


def _attune_rights(settings: Settings, features: Collection[Feature]) -> tuple[Rights, list[str]]:
    schema = settings.database.schema_name
    rights = attune_rights(schema, features)
    note = (
        f"PostgreSQL rights for Attune's known schema, named {schema!r} (--offline). No database was read: "
        "if this SQL fails, or a right is missing later, run the command without --offline."
    )
    return rights, [note]


def _read_rights(settings: Settings, role: str, features: Collection[Feature]) -> tuple[Rights, list[str]]:
    try:
        found = wait_for("reading the schema of the database", _read(settings, role, features))
    except Unavailable as error:
        hint = "`dlq-handler grants --offline` prints the rights for Attune's known schema"
        raise Unavailable(error.component, f"{error.what}; {hint}") from error
    schema = settings.database.schema_name
    if found.rights.absent:
        tables = ", ".join(sorted({_absent(need) for need in found.rights.absent}))
        print_error(
            f"Schema {schema!r} is not Attune's: it has no {tables}. "
            "Set database.url and database.schema to the database and schema of Attune."
        )
        raise typer.Exit(EXIT_FAILED)
    notes = [f"PostgreSQL rights for schema {schema!r}, as found in this database."]
    if not found.has_role:
        notes.append(
            f"The role {role!r} does not exist yet. First: CREATE ROLE {quoted(role)} LOGIN PASSWORD '...';"
        )
    if found.other_owners:
        notes.append(
            f"Tables in schema {settings.dlq_handler.schema_name!r} belong to {', '.join(found.other_owners)}. "
            f"After an update, run `dlq-handler migrate` as that role."
        )
    return found.rights, notes


def _absent(need: Need) -> str:
    columns = f" with column {' and '.join(need.columns)}" if need.columns else ""
    return f"table {need.name}{columns}"


async def _read(settings: Settings, role: str, features: Collection[Feature]) -> FoundDatabase:
    async with open_database(settings) as database:
        return await read_database(database, role, features)


def _broker_permissions(settings: Settings, features: Collection[Feature]) -> BrokerPermissions:
    return broker_permissions(
        settings.blueprint,
        intake_queues=(settings.dlq_handler.intake.queue, settings.dlq_handler.shadow.queue),
        drains=settings.dlq_handler.worker.drain_queues,
        sends_canaries=settings.dlq_handler.canary.enabled,
        lifecycle=queues_of_features(settings.flow_blueprints, features),
    )


async def _migrate(settings: Settings) -> SchemaVersion:
    async with open_database(settings) as database:
        return await store_migrate.upgrade(database)
