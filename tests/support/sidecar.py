"""The real sidecar, as a process of its own, with every knob that a test may turn."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import httpx

from sandbox.clean_environment import clean_environment
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedProcess, start_forked

# Every wait of the sidecar that a test would have to sit through, short.
QUICK = {
    "ATTUNE__DLQ_HANDLER__WORKER__WATCH_INTERVAL_SECONDS": "0.2",
    "ATTUNE__DLQ_HANDLER__OUTBOX__POLL_INTERVAL_SECONDS": "0.2",
    "ATTUNE__DLQ_HANDLER__OUTBOX__LEASE_SECONDS": "3",
    "ATTUNE__DLQ_HANDLER__BROKER__PUBLISH_TIMEOUT_SECONDS": "1",
    "ATTUNE__DLQ_HANDLER__LOG__FORMAT": "json",
}


class SidecarProcess:
    """One replica. Its log is a file of JSON lines under `folder`."""

    def __init__(
        self, folder: Path, *, amqp_url: str, database_url: str, name: str, environment: Mapping[str, str]
    ) -> None:
        self.name, self.port, self.ui_port = name, free_port(), free_port()
        self.log_path = folder / f"{name}.log"
        self._folder = folder
        self._environment = clean_environment(
            {
                **QUICK,
                "ATTUNE__MESSAGE_QUEUE__URL": amqp_url,
                "ATTUNE__DATABASE__URL": database_url,
                "ATTUNE__DLQ_HANDLER__REPLICA_NAME": name,
                "ATTUNE__DLQ_HANDLER__HTTP__HOST": "127.0.0.1",
                "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(self.port),
                "ATTUNE__DLQ_HANDLER__UI__PORT": str(self.ui_port),
                **environment,
            }
        )
        self._process: ForkedProcess | None = None

    async def start(self, *, program: Sequence[str] = ("-m", "dlq_handler"), ready: bool = True) -> None:
        """`program` may be a script that sabotages the sidecar before it runs it."""
        with self.log_path.open("ab") as log:
            self._process = await start_forked(
                (*program, "run"), stdout=log, stderr=log, cwd=self._folder, env=self._environment
            )
        if ready:
            await self.wait_ready()

    async def wait_ready(self) -> None:
        async def is_ready() -> bool:
            if not self.is_running:
                raise RuntimeError(f"the sidecar ended early:\n{self.log_text()[-4000:]}")
            status, _ = await self.readyz()
            return status == 200

        await eventually(is_ready, timeout=60)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(number)

    async def wait(self, timeout: float = 60) -> int:
        assert self._process
        async with asyncio.timeout(timeout):
            return await self._process.wait()

    async def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.wait()

    async def kill(self) -> None:
        if self.is_running:
            self.signal(signal.SIGKILL)
            await self.wait()

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"

    async def readyz(self) -> tuple[int, dict[str, Any]]:
        """(0, {}) while nothing listens."""
        return await self._ask("/readyz")

    async def problems(self) -> dict[str, str]:
        """What /readyz says of the view: an explanation for each check that is not ok, and not unknown either."""
        _, answer = await self.readyz()
        found = answer.get("diagnoses", ())
        return {one["check"]: one["explanation"] for one in found if one["health"] != "unknown"}

    async def healthz(self) -> tuple[int, dict[str, Any]]:
        return await self._ask("/healthz")

    async def _ask(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            # Unverified: to read the certificates costs more than the sidecar's start, at a question every 20 ms.
            async with httpx.AsyncClient(verify=False, trust_env=False) as client:
                answer = await client.get(f"http://127.0.0.1:{self.port}{path}")
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, answer.json()

    async def metrics(self) -> dict[str, float]:
        """Every sample by its full name with labels."""
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            text = (await client.get(f"http://127.0.0.1:{self.port}/metrics")).text
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    async def diagnoses(self) -> list[dict[str, Any]]:
        """What its API says is wrong, and what is not."""
        async with httpx.AsyncClient(verify=False, trust_env=False) as client:
            answer = (await client.get(f"{self.ui_url}/api/v1/diagnosis")).json()
        found: list[dict[str, Any]] = answer["diagnoses"]
        return found

    async def begin(self, *arguments: str) -> asyncio.subprocess.Process:
        """Begin another command with the same settings; its end is the caller's."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dlq_handler",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._folder,
            env=self._environment,
        )

    async def cli(self, *arguments: str) -> tuple[int, str, str]:
        """Run another command with the same settings: exit code, stdout, stderr."""
        with TemporaryFile() as out, TemporaryFile() as err:
            process = await start_forked(
                ("-m", "dlq_handler", *arguments),
                stdout=out,
                stderr=err,
                cwd=self._folder,
                env=self._environment,
            )
            try:
                async with asyncio.timeout(60):
                    code = await process.wait()
            finally:
                process.send_signal(signal.SIGKILL)
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()

    async def shell(self, line: str) -> tuple[int, str, str]:
        """Run a line of a page in `sh`, with the same settings: exit code, stdout, stderr."""
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            line,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._folder,
            env=self._environment | {"PATH": programs},
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def cli_json(self, *arguments: str) -> Any:
        code, out, err = await self.cli(*arguments, "--output", "json")
        assert code == 0, err
        return json.loads(out)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.log_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == name]


Command = Callable[..., SidecarProcess]
"""Makes one that runs commands; arguments are settings in its environment."""


@asynccontextmanager
async def sidecar_process(
    folder: Path,
    amqp_url: str,
    database_url: str,
    *,
    name: str = "sidecar-1",
    start: bool = True,
    **environment: str,
) -> AsyncIterator[SidecarProcess]:
    """A sidecar that ends with the test, however that ends. Keywords are settings: `batch__size="10"`."""
    process = SidecarProcess(
        folder,
        amqp_url=amqp_url,
        database_url=database_url,
        name=name,
        environment={_variable(key): value for key, value in environment.items()},
    )
    try:
        if start:
            await process.start()
        yield process
    finally:
        await process.kill()


def _variable(key: str) -> str:
    """`batch__size` is ours; a key in capitals is a variable as it stands."""
    return key if key.isupper() else f"ATTUNE__DLQ_HANDLER__{key.upper()}"
