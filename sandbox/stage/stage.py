"""A stage: private servers, Attune's processes and the sidecar, each started, killed and frozen by its name.

Once open, both servers run and Attune's schema is installed; every other part waits to be started. Nothing but the
logs outlives the stage, however its owner ends. A server that is killed keeps its data and its ports.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sandbox.attune.defects import Defect
from sandbox.attune.environment import Environment
from sandbox.server_programs.program import ROOT_FOLDER, Client, output_of
from sandbox.servers import PrivatePostgreSQL, PrivateRabbitMQ
from sandbox.servers.errors import StartFailed
from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.pair import kept
from sandbox.servers.ports import Place, free_port
from sandbox.stage.first_error import raise_first_error
from sandbox.stage.folder import Folder
from sandbox.stage.health import why_restart
from sandbox.stage.part import START_SECONDS, Part, PartFailed, ProgramPart
from sandbox.stage.parts import ATTUNE, PARTS, SERVERS
from sandbox.stage.process_identity import ProcessIdentity
from sandbox.stage.programs import (
    SCHEMA,
    Addresses,
    attune_environment,
    migrate,
    program_parts,
    sidecar_client,
)
from sandbox.times import Times

DATABASE = "attune"
COMMAND_SECONDS = 60
HOST = "127.0.0.1"
API_TOKEN = "sandbox"  # noqa: S105 (printed for everyone to use)


class Stage:
    """`Stage.open` makes one. `parts.PARTS` names the parts."""

    def __init__(
        self,
        folder: Folder,
        *,
        broker: PrivateRabbitMQ,
        database: PrivatePostgreSQL,
        times: Times,
        cured: Sequence[str],
        attune_settings: Mapping[str, str],
        sidecar_command: Sequence[str] | None,
        config: Path | None,
    ) -> None:
        self.broker, self.database, self.times = broker, database, times
        self.config = config
        self.addresses = Addresses(
            amqp_url=broker.amqp_url,
            management_url=broker.management_url,
            database_url=database.url_of(DATABASE),
            api_host=HOST,
            api_port=free_port(),
            api_token=API_TOKEN,
            ops_host=HOST,
            ops_port=free_port(),
            ui_port=free_port(),
        )
        self.amqp_url, self.management_url = broker.amqp_url, broker.management_url
        self.database_url = self.addresses.database_url
        self.api_url, self.api_token = self.addresses.api_url, API_TOKEN
        self.ops_url, self.ui_url = self.addresses.ops_url, self.addresses.ui_url
        self.folder = folder
        self._sidecar_settings = dict(attune_settings)
        environment = attune_environment(self.addresses, times, cured) | dict(attune_settings)
        self._attune = Environment.read(environment)
        self._parts: dict[str, Part] = {
            "broker": broker,
            "database": database,
            **program_parts(
                self.addresses,
                folder,
                times,
                environment=environment,
                attune_settings=attune_settings,
                sidecar_command=sidecar_command,
                config=config,
            ),
        }
        # A part is started or broken by one at a time; a worker that waits for its broker must not hinder that one.
        self._turns = {part: asyncio.Lock() for part in self._parts}
        self._record()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        folder: Path,
        *,
        print_line: Callable[[str], None],
        times: Times,
        cured: Sequence[str] = (),
        attune_settings: Mapping[str, str] | None = None,
        sidecar_command: Sequence[str] | None = None,
        config: Path | None = None,
    ) -> AsyncIterator["Stage"]:
        """`cured`: defects of stock Attune to leave out. `attune_settings`: variables for its processes and for the
        sidecar, which reads them too. `sidecar_command` replaces `python -m dlq_handler run`. `config`: a file that the
        sidecar and its commands read.

        FolderTaken, NoServer and PartFailed say what is in the way.
        """
        async with AsyncExitStack() as closing:
            taken = closing.enter_context(Folder.take(folder, print_line=print_line))
            taken.forget_logs()

            def place(part: str) -> Place:
                return Place(parent=taken.servers, log=taken.log(part))

            async def migrated() -> PrivatePostgreSQL:
                """While the broker, which takes longer, is still starting."""
                server = await kept(PrivatePostgreSQL.launch(place=place("database")), closing)
                print_line(f"PostgreSQL is ready: {server.origin}")
                await migrate(await server.create_database(DATABASE), taken, cured)
                print_line("Attune's schema is installed")
                return server

            print_line("starting RabbitMQ and PostgreSQL (or fetching them, the first time)")
            with raise_first_error():
                async with asyncio.TaskGroup() as group:
                    launching = group.create_task(
                        kept(PrivateRabbitMQ.launch(place=place("broker")), closing)
                    )
                    migrating = group.create_task(migrated())
            broker, database = launching.result(), migrating.result()
            print_line(f"RabbitMQ is ready: {broker.origin}")
            stage = cls(
                taken,
                broker=broker,
                database=database,
                times=times,
                cured=cured,
                attune_settings=attune_settings or {},
                sidecar_command=sidecar_command,
                config=config,
            )
            closing.push_async_callback(stage._kill_programs)
            yield stage

    async def start(self, *parts: str) -> None:
        """Side by side; returns when they are healthy, those that ran already included. PartFailed."""
        with raise_first_error():
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._start(part), name=f"start {part}")

    async def stop(self, part: str) -> None:
        """SIGTERM; returns when it has ended."""
        async with self._turn(part) as chosen:
            await chosen.stop()

    async def kill(self, *parts: str) -> None:
        """SIGKILL, side by side; return when they have ended."""
        with raise_first_error():
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._kill(part), name=f"kill {part}")

    async def hang(self, part: str) -> None:
        """SIGSTOP, to all its processes: it keeps its connections and its ports, and does nothing."""
        async with self._turn(part) as chosen:
            process = self.process(part)
            if process is None:
                raise PartFailed(part, "it does not run, so it cannot hang", chosen.log)
            await process.hang()

    async def resume(self, part: str) -> None:
        """SIGCONT; does not wait until it is healthy again, as `repair` does."""
        async with self._turn(part):
            if process := self.process(part):
                process.resume()

    async def restart(self, part: str) -> None:
        await self.stop(part)
        await self.start(part)

    def change_settings(self, part: str, variables: Mapping[str, str]) -> None:
        """Of a program, for its next start."""
        match self._part(part):
            case ProgramPart() as program:
                program.change_settings(variables)
                if part == "sidecar":
                    # Its commands read the same settings.
                    self._sidecar_settings |= variables
            case _:
                raise ValueError(f"{part} is a server: only Attune's parts and the sidecar have variables")

    async def sidecar_command(self, *arguments: str) -> str:
        """What a command of the sidecar's own prints, against this stage. ProgramFailed."""
        client = self._sidecar_client()
        return await output_of(
            *client.command,
            *arguments,
            environment=client.environment,
            folder=Path(client.start_in or ROOT_FOLDER),
            timeout=COMMAND_SECONDS,
        )

    def _sidecar_client(self) -> Client:
        return sidecar_client(
            self.addresses,
            self.folder,
            self.times,
            self.config,
            cured=self._attune.cured,
            attune_settings=self._sidecar_settings,
        )

    async def repair(self, part: str, *, print_line: Callable[[str], None]) -> None:
        """Whatever was done to it: returns when it is healthy."""
        if self.is_hung(part):
            await self.resume(part)
        if part in ATTUNE and self.is_running(part) and (why := await why_restart(self._attune, part)):
            print_line(f"{part} runs, but {why}; starting it again")
            await self.stop(part)
        await self.start(part)
        if part == "broker" and Defect.NO_RECONNECT not in self._attune.cured:
            again = " ".join(f"`./run repair {one}`" for one in ATTUNE if self.is_running(one))
            if again:
                print_line(f"Attune's services never connect again by themselves. Start them again: {again}")

    def is_running(self, part: str) -> bool:
        """True also while it hangs."""
        return self.process(part) is not None

    def is_hung(self, part: str) -> bool:
        process = self.process(part)
        return process is not None and process.is_hung

    def process(self, part: str) -> OwnedProcess | None:
        """None when it does not run."""
        process = self._part(part).process
        return process if process and process.is_running else None

    def log(self, part: str) -> Path:
        return self._part(part).log

    async def _start(self, part: str) -> None:
        async with self._turn(part) as chosen:
            try:
                if process := self.process(part):
                    await process.answers(chosen.await_ready(START_SECONDS))
                else:
                    await chosen.start()
            except StartFailed as failed:
                raise PartFailed(part, str(failed), chosen.log) from failed

    async def _kill(self, part: str) -> None:
        async with self._turn(part) as chosen:
            await chosen.kill()

    async def _kill_programs(self) -> None:
        """Without the locks: what is still being started is killed too."""
        async with asyncio.TaskGroup() as group:
            for name, part in self._parts.items():
                if name not in SERVERS:
                    group.create_task(part.kill(), name=f"kill {name}")

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[Part]:
        part = self._part(name)
        async with self._turns[name]:
            try:
                yield part
            finally:
                self._record()

    def _part(self, name: str) -> Part:
        try:
            return self._parts[name]
        except KeyError:
            raise ValueError(f"no part '{name}'; there are {', '.join(PARTS)}") from None

    def _record(self) -> None:
        marks = {name: ProcessIdentity.of(process.pid) for name in PARTS if (process := self.process(name))}
        self.folder.record(
            times=self.times.name,
            config=str(self.config or ""),
            processes={name: mark for name, mark in marks.items() if mark},
            folders=(str(self.broker.folder), str(self.database.folder)),
            urls={
                "api": self.api_url,
                "api_token": self.api_token,
                "amqp": self.amqp_url,
                "management": self.management_url,
                "database": self.database_url,
                "ops": self.ops_url,
                "ui": self.ui_url,
            },
            clients={
                "psql": self.database.client(DATABASE, f"{SCHEMA},public"),
                "rabbitmqctl": self.broker.client(),
                "dlq-handler": self._sidecar_client(),
            },
        )
