"""A PostgreSQL of our own: own folder, own port on 127.0.0.1, no Unix socket; never the system's service.

Ends, with its folder, when this process ends in any way. As root it runs as another user, since it refuses
root.
"""

import os
import secrets
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Self

from sandbox.server_programs.account import Account
from sandbox.server_programs.postgresql import PostgreSQLPrograms
from sandbox.server_programs.program import Client, output_of
from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.ports import (
    ANYWHERE,
    Place,
    free_port,
    is_reachable_by_all,
    private_folder,
    remove_folder,
)
from sandbox.servers.postgresql import PostgreSQL
from sandbox.servers.sources import first_available, started

USER = "postgres"
START_SECONDS = 60
LASTING = {
    "jit": "off",  # costs more than it saves on statements of ours, and unpacked packages leave it out
    "max_connections": "200",
    "unix_socket_directories": "",  # their paths are limited to 107 characters
    "listen_addresses": "127.0.0.1",
    "log_timezone": "GMT",
}
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PrivatePostgreSQL(PostgreSQL):
    def __init__(
        self, programs: PostgreSQLPrograms, origin: str, *, durable: bool = True, place: Place = ANYWHERE
    ) -> None:
        password = secrets.token_hex(8)
        super().__init__(
            url=f"postgresql://{USER}:{password}@127.0.0.1:{free_port()}/postgres", origin=origin
        )
        self._account = Account.unprivileged()
        self.folder = private_folder("postgresql", self._account, place.parent)
        self.log = place.log or self.folder / "postgresql.log"
        self._programs = self._within_reach(programs)
        self._settings = LASTING if durable else LASTING | FORGETFUL
        self._password = password
        self.process: OwnedProcess | None = None

    @classmethod
    async def launch(cls, *, durable: bool = True, place: Place = ANYWHERE) -> Self:
        """A private one, whatever else there is: for tests that kill it. NoServer when neither way is open.

        Not durable is quicker, for tests that never kill it.
        """
        ways = {
            "this machine": partial(cls.of_this_machine, durable=durable, place=place),
            "packages": partial(cls.of_packages, durable=durable, place=place),
        }
        return await first_available("PostgreSQL", ways)

    @classmethod
    async def of_this_machine(cls, *, durable: bool = True, place: Place = ANYWHERE) -> Self:
        programs = PostgreSQLPrograms.on_this_machine()
        origin = f"private, from {programs.folder}"
        return await started(lambda: cls(programs, origin, durable=durable, place=place))

    @classmethod
    async def of_packages(cls, *, durable: bool = True, place: Place = ANYWHERE) -> Self:
        programs = await PostgreSQLPrograms.of_packages()
        origin = f"private, from packages unpacked in {programs.root}"
        return await started(lambda: cls(programs, origin, durable=durable, place=place))

    async def start(self) -> None:
        if self.process and self.process.is_running:
            return
        if not self._cluster.exists():
            await self._make_cluster()
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self.process = OwnedProcess(
            [str(self._programs.server), "-D", str(self._cluster), "-p", str(self.port), *settings],
            environment=self._environment(),
            log=self.log,
            folder=self.folder,
            account=self._account,
        )
        await self.process.answers(self.await_ready(START_SECONDS))

    async def stop(self) -> None:
        """The fast shutdown: sessions are ended, everything is written."""
        if self.process:
            await self.process.stop(signal.SIGINT)

    async def kill(self) -> None:
        if self.process:
            await self.process.kill()

    async def close(self) -> None:
        await self.kill()
        remove_folder(self.folder)

    def client(self, database: str, search_path: str) -> Client:
        """psql."""
        place = {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": self._password,
            "PGDATABASE": database,
            "PGOPTIONS": f"-c search_path={search_path}",
        }
        return Client(command=[str(self._programs.client)], environment=place | self._libraries())

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster"

    async def _make_cluster(self) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self._password)
        # Made beside its place, so that an initdb that was cut off is not started from.
        unfinished = self.folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        if self._account:
            os.chown(password_file, self._account.uid, self._account.gid)
        await output_of(
            str(self._programs.initdb),
            *("-D", str(unfinished), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password_file}"),
            *("--no-sync", "-E", "UTF8", "--locale=C"),
            environment=self._environment(),
            account=self._account,
        )
        unfinished.rename(self._cluster)

    def _environment(self) -> dict[str, str]:
        """The caller's, but for what would lead to another PostgreSQL or into a home that the server may not
        enter.
        """
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))
        }
        return {**inherited, **self._libraries(), "HOME": str(self.folder), "TZ": "GMT", "LC_ALL": "C"}

    def _libraries(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": self._programs.library_path} if self._programs.library_path else {}

    def _within_reach(self, programs: PostgreSQLPrograms) -> PostgreSQLPrograms:
        """Root's cache folder is closed to the user the server runs as: then it gets a copy of its own (0.2
        s).
        """
        if programs.root is None or self._account is None or is_reachable_by_all(programs.root):
            return programs
        copy = self.folder / "programs"
        shutil.copytree(programs.root, copy, symlinks=True)
        return PostgreSQLPrograms.under(copy)
