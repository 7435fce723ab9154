"""Run one part of the reference Attune: `python -m sandbox.attune PART`. Its settings come from the environment.

    migrate                          install the schema and the actions, and end
    api | executor | sensor          serve until SIGTERM
    worker NAME [--runtime RUNTIME]  serve until SIGTERM
    health api|executor|sensor|worker NAME  exit 0 if it is well; one line either way

A server that is away at the start is waited for, and so is the database at any time. A broker that is lost later is
lost for good: start the part again, as Attune's.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from sandbox.attune import messages
from sandbox.attune.actions import RUNTIMES, install_actions
from sandbox.attune.database import DATABASE_AWAY, Database
from sandbox.attune.defects import Defect
from sandbox.attune.environment import BadEnvironment, Environment
from sandbox.attune.health import Unhealthy, api_health, executor_health, sensor_health, worker_health
from sandbox.attune.log_line import PrintLine, to_stdout
from sandbox.attune.process import until_signalled
from sandbox.attune.schema import install

EXIT_UNWELL = 1
EXIT_UNAVAILABLE = 69
EXIT_ENVIRONMENT = 78

END_SECONDS = 5.0
MIGRATE_PATIENCE_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        environment = Environment.read(os.environ)
    except BadEnvironment as error:
        print(error, file=sys.stderr)
        return EXIT_ENVIRONMENT
    if Defect.NANOSECONDS in environment.cured:
        messages.write_microseconds()
    match chosen.part:
        case "migrate":
            return asyncio.run(_migrate(environment, to_stdout("migrate")))
        case "health":
            return _tell_health(environment, chosen.of, chosen.name)
        case "worker":
            asyncio.run(_run_worker(environment, chosen.name, chosen.runtime or _runtime_by(chosen.name)))
        case _:
            asyncio.run(_run(chosen.part, environment))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox.attune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    for name in ("migrate", "api", "executor", "sensor"):
        parts.add_parser(name)
    worker = parts.add_parser("worker")
    worker.add_argument("name", metavar="NAME")
    worker.add_argument("--runtime", choices=RUNTIMES, help="by default what the name ends with, else shell")
    health = parts.add_parser("health")
    health.add_argument("of", choices=("api", "executor", "sensor", "worker"))
    health.add_argument("name", nargs="?", default="", metavar="NAME", help="of the worker")
    return parser


async def _migrate(environment: Environment, print_line: PrintLine) -> int:
    database = await Database.open(
        environment.database_url, environment.schema, patience_seconds=MIGRATE_PATIENCE_SECONDS
    )
    try:
        await database.session.fetchval("SELECT 1")  # waits for the server
        await install(environment.database_url, environment.schema, cured=environment.cured)
        async with database.transaction() as session:
            await install_actions(session)
    except DATABASE_AWAY as error:
        print_line(f"the database is away: {type(error).__name__}: {error}")
        return EXIT_UNAVAILABLE
    finally:
        await database.close()
    print_line(f"schema {environment.schema} and the actions are there")
    return 0


async def _run(part: str, environment: Environment) -> None:
    print_line = to_stdout(part)
    _tell_start(environment, print_line)
    match part:
        case "api":
            from sandbox.attune.api.process import run_api as run  # noqa: PLC0415 (slow; others do not need it)
        case "executor":
            from sandbox.attune.executor_process import run_executor as run  # noqa: PLC0415 (slow, too)
        case _:
            from sandbox.attune.sensor_process import run_sensor as run  # noqa: PLC0415 (as above)
    await until_signalled(
        lambda stop: run(environment, stop, print_line),
        grace_seconds=END_SECONDS,
        ends_at_once=part in ("api", "executor") and Defect.SIGTERM_AT_ONCE not in environment.cured,
    )


async def _run_worker(environment: Environment, name: str, runtime: str) -> None:
    from sandbox.attune.worker_process import WorkerProcess  # noqa: PLC0415 (slow, too)

    print_line = to_stdout(name)
    _tell_start(environment, print_line)
    worker = WorkerProcess(environment, name, runtime=runtime, print_line=print_line)
    await until_signalled(worker.run, grace_seconds=environment.times.shutdown_seconds + END_SECONDS)


def _tell_start(environment: Environment, print_line: PrintLine) -> None:
    present = [defect.name for defect in Defect if defect not in environment.cured]
    print_line(f"starts with {environment.times.name} times and the defects {' '.join(present) or '(none)'}")


def _tell_health(environment: Environment, part: str, name: str) -> int:
    try:
        match part:
            case "api":
                healthy = api_health(environment)
            case "executor":
                healthy = asyncio.run(executor_health(environment))
            case "sensor":
                healthy = asyncio.run(sensor_health(environment))
            case _:
                healthy = asyncio.run(worker_health(environment, name))
    except Unhealthy as error:
        print(f"unhealthy: {error}")
        return EXIT_UNWELL
    print(f"healthy: {healthy}")
    return 0


def _runtime_by(name: str) -> str:
    ending = name.rpartition("-")[2]
    return ending if ending in RUNTIMES else RUNTIMES[0]


if __name__ == "__main__":
    sys.exit(main())
