"""`dlq-handler config`: check the settings, and show each with its origin. Asks no server."""

import os
from pathlib import Path

import typer

from dlq_handler.cli.options import ConfigOption, Output, OutputOption
from dlq_handler.cli.printing import jsonable, print_error, print_json, print_table, print_warning, printable
from dlq_handler.settings import ConfigError, Loaded, Problem, load
from dlq_handler.settings.keys import known_keys
from dlq_handler.settings.model import derived_values

app = typer.Typer(no_args_is_help=True)


def load_or_exit(config: Path | None) -> Loaded:
    """For every command that needs settings: one line per problem to stderr, then exit code 78."""
    try:
        return load(config, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            print_error(str(problem))
        raise typer.Exit(error.exit_code) from None


@app.command()
def check(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show which files are read and whether the settings can be used, one line per problem."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    try:
        loaded = load(config, os.environ)
        files, warnings, variables = loaded.files, loaded.warnings, tuple(loaded.overrides.values())
    except ConfigError as error:
        files, problems = error.files, error.problems
    if output is Output.JSON:
        found = [{**jsonable(problem), "message": str(problem)} for problem in problems]
        print_json({"ok": not problems, "files": files, "warnings": warnings, "problems": found})
    else:
        print(_files_line(files))
        for line in (
            *(f"variable: {variable}" for variable in variables),
            *(f"warning: {warning}" for warning in warnings),
            *(f"problem: {problem}" for problem in problems),
        ):
            print(printable(line))
        print("ok" if not problems else f"{len(problems)} to correct")
    if problems:
        raise typer.Exit(ConfigError.exit_code)


@app.command()
def show(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Print every setting in force, secrets redacted, and where it comes from."""
    loaded = load_or_exit(config)
    derived = derived_values(loaded.settings)
    settings = [
        {
            "key": key.name,
            "value": derived.get(key.name, key.value_in(loaded.settings)),
            "origin": loaded.origins[key.name],
        }
        for key in known_keys().values()
    ]
    if output is Output.JSON:
        print_json({"files": loaded.files, "warnings": loaded.warnings, "settings": settings})
        return
    print(_files_line(loaded.files))
    for warning in loaded.warnings:
        print_warning(warning)
    print_table(("KEY", "VALUE", "FROM"), [tuple(setting.values()) for setting in settings], whole=("KEY",))


def _files_line(files: tuple[Path, ...]) -> str:
    return f"files: {', '.join(map(str, files)) or 'none (defaults and variables only)'}"
