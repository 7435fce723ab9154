"""What was named must be there: a mistyped name would be answered with an empty list, which reads as good news."""

from dataclasses import replace

import typer

from dlq_handler.compose import retention_policy
from dlq_handler.domain.letter_filter import LetterFilter
from dlq_handler.settings import Settings
from dlq_handler.store import letter_groups, letter_search
from dlq_handler.store.engine import Database
from dlq_handler.store.swept import group_swept_at, worker_swept_at
from dlq_handler.store.workers import list_workers, worker_names
from dlq_handler.surface.cli.exits import EXIT_FAILED
from dlq_handler.surface.cli.letter_options import Wanted
from dlq_handler.surface.cli.printing import print_error
from dlq_handler.surface.swept import swept_group_sentence, swept_worker_sentence


async def known(database: Database, settings: Settings, wanted: Wanted) -> LetterFilter:
    """Ends the command, in words, for a group, a worker's name or a worker's id that nobody knows."""
    if wanted.letters.group is not None:
        await expect_group(database, settings, wanted.letters.group)
    if wanted.letters.worker_id is not None:
        await _expect_worker(database, settings, wanted.letters.worker_id)
    if wanted.worker_name is None:
        return wanted.letters
    return replace(wanted.letters, worker_id=await _worker_named(database, wanted.worker_name))


async def expect_group(database: Database, settings: Settings, group_id: str) -> None:
    if await letter_groups.group(database, group_id) is not None:
        return
    swept_at = await group_swept_at(database, group_id)
    if swept_at is not None:
        print_error(swept_group_sentence(group_id, swept_at, retention_policy(settings)))
    else:
        print_error(f"no such group: {group_id}; `dlq-handler letters groups --since 7d` shows what is there")
    raise typer.Exit(EXIT_FAILED)


async def _expect_worker(database: Database, settings: Settings, worker_id: int) -> None:
    """One that is deregistered is known by its letters."""
    if worker_id in await worker_names(database):
        return
    if (await letter_search.count(database, LetterFilter(worker_id=worker_id), cap=1)).count:
        return
    swept_at = await worker_swept_at(database, worker_id)
    if swept_at is not None:
        print_error(swept_worker_sentence(worker_id, swept_at, retention_policy(settings)))
    else:
        print_error(
            f"no worker {worker_id} is registered, and no letter to one is on record; `dlq-handler workers list` shows "
            "who is there"
        )
    raise typer.Exit(EXIT_FAILED)


async def _worker_named(database: Database, name: str) -> int:
    workers = await list_workers(database)
    found = [one.worker.id for one in workers if one.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        print_error(
            f"{len(found)} workers are called {name}; name one by its id: {', '.join(map(str, found))}"
        )
    else:
        names = ", ".join(sorted({one.name for one in workers})) or "none"
        print_error(
            f"no worker is called {name}; there are: {names}. One that is deregistered is known by its id alone"
        )
    raise typer.Exit(EXIT_FAILED)
