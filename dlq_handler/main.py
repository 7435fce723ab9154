"""The command `dlq-handler`: nouns, then verbs. Exit codes: cli/exits.py.

A command's module is imported when the command is typed. So `--version` and `--help` import typer and little else:
the libraries of broker, database and settings take a second of CPU. A test holds that.
"""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from dlq_handler import __version__
from dlq_handler.errors import Contended, RowRefused, Unavailable, UnsupportedLibrary


class _Command(NamedTuple):
    source: str
    """`module:name` in this package of a function, or of an app with commands of its own."""
    help: str


_COMMANDS = {
    "run": _Command("run:run", "Run a replica until SIGTERM or SIGINT."),
    "status": _Command("cli.status:status", "Show what is wrong right now, since when, and what to do."),
    "doctor": _Command("cli.doctor:doctor", "Check everything that dlq-handler depends on."),
    "letters": _Command("cli.letters:app", "Dead letters on record."),
    "executions": _Command("cli.executions:app", "Executions, and what happened to them."),
    "workers": _Command("cli.workers:app", "Workers, their heartbeats and their queues."),
    "queues": _Command("cli.queues:app", "Queues, and who owns each of them."),
    "flows": _Command("cli.flows:app", "Flows: queues that dlq-handler creates, stops and deletes together."),
    "brake": _Command("cli.brake:app", "The brake (circuit breaker), which stops a mass failure."),
    "canary": _Command("cli.canary:app", "Canaries, which test the dead-letter route without an execution."),
    "topology": _Command("cli.topology:app", "Exchanges, queues and bindings on the route of a dead letter."),
    "audit": _Command("cli.audit:app", "Operations of users, with time and comment."),
    "config": _Command("cli.config:app", "Check and show the settings. Exit code 78: they cannot be used."),
    "migrate": _Command("cli.database:migrate", "Create or upgrade the tables of dlq-handler."),
    "grants": _Command("cli.database:grants", "Print the rights that dlq-handler needs."),
    "health": _Command("run:health", "Check that every loop of the replica in this container runs."),
}


# structlog and httpx import them where they are installed, for output in color that dlq-handler does not use: 5 MB of
# each replica, and a tenth of a second of each command. `printing` imports rich itself when it prints on a terminal.
_UNUSED_BY_LIBRARIES = ("rich", "pygments")


def _import_lean(module: str) -> ModuleType:
    unused = [name for name in _UNUSED_BY_LIBRARIES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]  # None is documented: the import then fails
    try:
        return import_module(module)
    finally:
        for name in unused:
            del sys.modules[name]


class _LoadedCommands(Mapping[str, Any]):
    """The commands by name. Each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        command = _COMMANDS[name]
        module, _, attribute = command.source.partition(":")
        loaded = getattr(_import_lean(f"dlq_handler.{module}"), attribute)
        parent = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        if isinstance(loaded, typer.Typer):
            parent.add_typer(loaded, name=name, help=command.help)
        else:
            parent.command(name)(loaded)
        return typer.main.get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _LazyGroup(TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given | {"commands": _LoadedCommands()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the signature is typer's
        return list(_COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  the signature is typer's
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])


app = typer.Typer(
    cls=_LazyGroup,
    name="dlq-handler",
    help="Ends executions whose worker is unavailable, and publishes their completion event, beside an unmodified "
    "Attune.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich would take longer to import than everything else.
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[  # noqa: ARG001  its callback has printed it
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    # `--version` and `--help` log nothing, so it is imported here.
    logs = _import_lean("dlq_handler.logs")
    # On stderr: a program may read what a command prints on stdout. `run` configures its own.
    logs.configure_logging(level="warning", format="auto", stream=sys.stderr)


def main(program_name: str | None = None) -> None:
    """Expected errors end in one line on stderr and an exit code, never in a trace.

    `program_name`: what the operator types to run this program, for its help.
    """
    try:
        app(prog_name=program_name)
    except (Unavailable, Contended, RowRefused, UnsupportedLibrary, ExceptionGroup) as error:
        from dlq_handler.cli.exits import exit_code_of  # noqa: PLC0415  only after an error

        code = exit_code_of(error)
        if code is None:
            raise
        sys.exit(code)
