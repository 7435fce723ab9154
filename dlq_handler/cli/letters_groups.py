"""`dlq-handler letters groups`: dead letters by category, the same rows as on the first page of the dashboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_FAILED
from dlq_handler.cli.options import (
    ConfigOption,
    Output,
    OutputOption,
    SinceOption,
    UntilOption,
    refuse_reversed,
)
from dlq_handler.cli.patience import ask_database
from dlq_handler.cli.printing import print_error, print_json, print_table
from dlq_handler.database.engine import Database
from dlq_handler.database.lease_sql import read_server
from dlq_handler.dead_letters import groups_sql, reprocess_sql
from dlq_handler.dead_letters.group import GroupCount, title_in
from dlq_handler.dead_letters.listing import group_version, no_record_sentence
from dlq_handler.history import history_sql
from dlq_handler.history.history import Timeline
from dlq_handler.host.workers_sql import list_workers
from dlq_handler.settings import Settings

USUAL_SPAN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """Groups, with the facts that their titles need."""

    counts: Sequence[GroupCount]
    in_all: int
    timelines: Sequence[Timeline]
    names: Mapping[int, str]
    ttl_seconds: float
    """Of the workers' queues."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """By group: the state that `letters reprocess --if-version` expects. Empty for text output."""

    def title(self, one: GroupCount) -> str:
        return title_in(
            one.group, self.timelines, self.names, ttl_seconds=self.ttl_seconds, last_at=one.last_at
        )


def groups(
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number of groups, the largest first.")
    ] = 50,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List groups of dead letters by category, the largest first. Default: those of the last hour."""
    refuse_reversed(since, until)
    is_json = output is Output.JSON
    settings = load_or_exit(config).settings
    read = partial(
        _read,
        ttl_seconds=settings.message_queue.rabbitmq.worker_queue_ttl_ms / 1000,
        since=since,
        until=until,
        limit=limit,
        with_versions=is_json,
    )
    found, now = ask_database("counting dead letters", settings, read)
    if is_json:
        print_json([_full(found, one) for one in found.counts])
        return
    print_groups(found, now)
    if found.in_all > len(found.counts):
        typer.echo(f"there are {found.in_all - len(found.counts)} more: raise --limit", err=True)


async def _read(
    database: Database,
    *,
    ttl_seconds: float,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    with_versions: bool,
) -> GroupList:
    """Default: the last hour, by the database's clock."""
    end = until or (await read_server(database)).now
    begin = since or end - USUAL_SPAN
    counts = await groups_sql.groups(database, since=begin, until=end, limit=limit)
    versions: dict[str, str] = {}
    if with_versions:
        async with database.transaction() as tx:
            for one in counts:
                state = await reprocess_sql.read_group_state(tx, one.group.id)
                versions[one.group.id] = group_version(state.digest)
    return GroupList(
        counts=counts,
        in_all=await groups_sql.count_groups(database, since=begin, until=end),
        timelines=await history_sql.timelines(
            database, since=begin - timedelta(seconds=ttl_seconds), until=end
        ),
        names={one.worker.id: one.name for one in await list_workers(database)},
        ttl_seconds=ttl_seconds,
        versions=versions,
    )


def print_groups(found: GroupList, now: datetime) -> None:
    print_table(
        ("GROUP", "TITLE", "REASON", "QUEUE", "ACTIONS", "LETTERS", "FAILED BY LETTER", "LAST"),
        [
            (
                one.group.id,
                found.title(one),
                one.group.reason,
                one.group.queue,
                [*one.group.actions, *([f"+{one.group.more_actions}"] if one.group.more_actions else [])]
                or None,
                one.letters,
                one.failed_by_letter,
                one.last_at,
            )
            for one in found.counts
        ],
        empty="no dead letters in this time",
        now=now,
        optional=("QUEUE", "ACTIONS", "REASON", "FAILED BY LETTER"),
    )


def _full(found: GroupList, one: GroupCount) -> dict[str, object]:
    return {
        "id": one.group.id,
        "title": found.title(one),
        "category": one.group.category,
        "reason": one.group.reason,
        "queue": one.group.queue,
        "detail": one.group.detail,
        "worker_id": one.group.worker_id,
        "actions": one.group.actions,
        "more_actions": one.group.more_actions,
        "letters": one.letters,
        "failed_by_letter": one.failed_by_letter,
        "last_at": one.last_at,
        "first_at_ever": one.group.first_at,
        "letters_ever": one.group.letters,
        "version": found.versions.get(one.group.id),
    }


async def expect_group(database: Database, settings: Settings, group_id: str) -> None:
    if await groups_sql.group(database, group_id) is not None:
        return
    print_error(
        f"{no_record_sentence(settings.retention.longest_seconds)} "
        "`dlq-handler letters groups --since 7d` lists groups."
    )
    raise typer.Exit(EXIT_FAILED)
