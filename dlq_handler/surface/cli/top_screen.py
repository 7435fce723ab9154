"""What `top` shows: the diagnosis first, then who is there, then what died. Pure: a sight in, something to draw out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.diagnosis import Diagnosis, conclusion_of
from dlq_handler.domain.letter_group import MinuteCount
from dlq_handler.domain.observation import SIGNS, Health
from dlq_handler.domain.seconds import in_units
from dlq_handler.domain.view import Unknown, View, WorkerSeen
from dlq_handler.surface.cli.letters_groups import GroupsSeen
from dlq_handler.surface.cli.printing import fitting, printable, shown
from dlq_handler.surface.cli.times import utc, with_age

WORKER_COLUMNS = (
    "ID", "WORKER", "AVAILABILITY", "HEARTBEAT", "CONSUMERS", "READY", "UNACKED", "SCHEDULED", "RUNNING", "ENDED 1H",
)  # fmt: skip

# What a narrow window goes without, the first one first, before a name is cut.
_SPARE_OF_WORKERS = ("RUNNING", "SCHEDULED", "UNACKED", "ENDED 1H", "READY", "CONSUMERS")
_LETTER_COLUMNS = ("CAUSE", "QUEUE", "LETTERS", "FAILED", "LAST")
_SPARE_OF_LETTERS = ("QUEUE", "LAST", "FAILED")
_MOST_WORKERS = 8
_COLOURS = {Health.PROBLEM: "bold red", Health.CANNOT_TELL: "yellow", Health.OK: "green"}
_STATE_COLOURS = {
    Availability.AVAILABLE: "green",
    Availability.LATE: "yellow",
    Availability.UNAVAILABLE: "red",
}
_BARS = "▁▂▃▄▅▆▇█"
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at everything. `taken_at` is by our own clock, to say how old it is."""

    view: View
    diagnoses: Sequence[Diagnosis]
    groups: GroupsSeen | Unknown
    minutes: Sequence[MinuteCount] = ()
    taken_at: float = 0.0


def screen(sight: Sight | None, *, environment: str | None, now: float, width: int) -> RenderableType:
    """`now` by the clock of `taken_at`, `width` of the window. None: nobody has looked yet."""
    name = f"dlq-handler {environment}" if environment else "dlq-handler"
    if sight is None:
        return Text(f"{name}: asking the database and the broker …")
    conclusion = conclusion_of(sight.diagnoses)
    age = in_units(max(0.0, now - sight.taken_at))
    head = Text.assemble(
        (f"{name}  ", "bold"),
        (f"{SIGNS[conclusion]} {conclusion}", _COLOURS[conclusion]),
        (f"  {utc(sight.view.at)} ({age} ago)  Ctrl-C ends", "dim"),
    )
    return Group(
        head,
        *_diagnoses(sight.diagnoses, sight.view),
        Text(),
        *_workers(sight.view.workers, sight.view.at, width),
        Text(),
        *_letters(sight, width),
    )


def not_ok_first(workers: Iterable[WorkerSeen]) -> list[WorkerSeen]:
    worst = [Availability.UNAVAILABLE, Availability.CANNOT_TELL, Availability.LATE, Availability.AVAILABLE]
    return sorted(workers, key=lambda one: (not one.is_missed, worst.index(one.standing.availability)))


def worker_row(one: WorkerSeen) -> Sequence[object]:
    worker, sight = one.registered.worker, one.sight
    counts: list[object] = ["?", "?", "?"] if isinstance(one.queue, Unknown) else [None, None, None]
    if sight is not None:
        counts = [sight.consumers, sight.ready, "?" if sight.unacked is None else sight.unacked]
    return (
        worker.id,
        one.registered.name,
        one.standing.availability,
        worker.last_heartbeat or "never",
        *counts,
        one.registered.scheduled,
        one.registered.running,
        "?" if one.ended_last_hour is None else one.ended_last_hour,
    )


def bars(counts: Sequence[int]) -> str:
    """One sign for each: the highest is full, and nothing is a blank, so that one letter is not taken for none."""
    most = max(counts, default=0)
    return "".join(_BARS[(count * len(_BARS) - 1) // most] if count else " " for count in counts)


def _diagnoses(diagnoses: Sequence[Diagnosis], view: View) -> Iterator[RenderableType]:
    for one in diagnoses:
        if one.health is Health.OK:
            continue
        yield Text.assemble(
            (f"{SIGNS[one.health]} {one.subject}: ", _COLOURS[one.health]), printable(one.said)
        )
        since = "" if one.since is None else f"since {with_age(one.since, view.at)}; "
        rest = Text(f"{since}next: {printable(one.next_step or '-')} ({one.command})", style="dim")
        yield Padding(rest, (0, 0, 0, 4))
    fine = ", ".join(one.kind for one in diagnoses if one.health is Health.OK)
    yield Text(f"{SIGNS[Health.OK]} ok: {fine or 'nothing'}", style="dim")


def _workers(workers: Sequence[WorkerSeen] | Unknown, now: datetime, width: int) -> Iterator[RenderableType]:
    if isinstance(workers, Unknown):
        yield Text(f"? workers: {printable(workers.why)}", style="yellow")
        return
    ordered = not_ok_first(workers)
    rows: list[list[Text]] = []
    for one in ordered[:_MOST_WORKERS]:
        colour = _STATE_COLOURS.get(one.standing.availability, "")
        cells = [shown(value, now=now) for value in worker_row(one)]
        rows.append([Text(cell, style=colour if place == 2 else "") for place, cell in enumerate(cells)])
    yield from _table(WORKER_COLUMNS, rows, spare=_SPARE_OF_WORKERS, width=width)
    rest = ordered[_MOST_WORKERS:]
    for state in Availability:
        count = sum(one.standing.availability is state for one in rest)
        if count:
            yield Text(f"+{count} {state.value.replace('_', ' ')}", style="dim")


def _letters(sight: Sight, width: int) -> Iterator[RenderableType]:
    groups = sight.groups
    if isinstance(groups, Unknown):
        yield Text(f"? letters: {printable(groups.why)}", style="yellow")
        return
    if not groups.counts:
        yield Text("no dead letters in the last hour", style="dim")
        return
    by_minute: Counter[datetime] = Counter()
    for one in sight.minutes:
        by_minute[one.minute] += one.letters
    first = groups.since.replace(second=0, microsecond=0)
    counts = [by_minute[first + number * _MINUTE] for number in range(61)]
    yield Text(f"dead letters a minute, last hour: {sum(counts)} in all, at most {max(counts)}", style="bold")
    yield Text(bars(counts))
    yield Text(f"{'an hour ago':<{len(counts) - 3}}now", style="dim")
    rows: list[list[Text]] = []
    for row in groups.counts:
        cells = (
            groups.title(row),
            row.group.queue,
            row.letters,
            row.failed,
            with_age(row.last_at, groups.now),
        )
        rows.append([Text(shown(cell)) for cell in cells])
    yield from _table(_LETTER_COLUMNS, rows, spare=_SPARE_OF_LETTERS, width=width)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[Text]], *, spare: Sequence[str], width: int
) -> Iterator[RenderableType]:
    cells = [[cell.plain for cell in row] for row in rows]
    kept = fitting(columns, cells, spare=spare, width=width)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place in kept:
        table.add_column(columns[place], overflow="fold")
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    yield table
    if left_out := [name for place, name in enumerate(columns) if place not in kept]:
        yield Text(f"not shown for want of width: {', '.join(left_out)}", style="dim")
