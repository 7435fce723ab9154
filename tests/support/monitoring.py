"""A real Prometheus and a real Alertmanager on the files of ops/, and a receiver of their notifications.

Only durations (a twentieth, like the sandbox's times) and addresses of these files are changed.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually
from tests.support.ops_files import ALERTMANAGER, OPS, RULE_FILES

PROMETHEUS_PACKAGE = "prometheus"
ALERTMANAGER_PACKAGE = "prometheus-alertmanager"

# Debian's Alertmanager reads its templates from here. As long as it was, and relative: to the folder it is started in.
TEMPLATES = b"/usr/share/prometheus/alertmanager"
TEMPLATES_OF_FOLDER = b"usr//share/prometheus/alertmanager"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringPrograms:
    prometheus: Path
    promtool: Path
    alertmanager: Path
    alertmanager_folder: Path
    """Where it has to be started."""
    amtool: Path

    @classmethod
    async def find(cls) -> Self:
        """SourceUnavailable when one of them is neither on PATH nor to be had as a package."""
        # Debian's package names the program differently from all others.
        alertmanager = await _found(ALERTMANAGER_PACKAGE, "alertmanager", "prometheus-alertmanager")
        root = packages.cache_folder() / ALERTMANAGER_PACKAGE
        return cls(
            prometheus=await _found(PROMETHEUS_PACKAGE, "prometheus"),
            promtool=await _found(PROMETHEUS_PACKAGE, "promtool"),
            alertmanager=alertmanager,
            alertmanager_folder=root if alertmanager.is_relative_to(root) else Path("/"),
            amtool=await _found(ALERTMANAGER_PACKAGE, "amtool"),
        )


async def _found(package: str, *names: str) -> Path:
    for name in names:
        if program := shutil.which(name):
            return Path(program)
    root = await packages.unpacked(package, point_at_templates)
    for name in names:
        unpacked = root / "usr" / "bin" / name
        if unpacked.exists():
            return unpacked
    raise SourceUnavailable(f"{root} holds no {names[0]}; remove that folder and try again")


def point_at_templates(unpacked: Path, _final: Path) -> None:
    """Without its templates Alertmanager does not start."""
    program = unpacked / "usr" / "bin" / "prometheus-alertmanager"
    if program.exists():
        program.write_bytes(program.read_bytes().replace(TEMPLATES, TEMPLATES_OF_FOLDER))


SHORTER = 20
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}


def shortened(text: str) -> str:
    """Every duration of a rule or a configuration file, and nothing else."""
    pattern = r"(?P<before>\b(?:keep_firing_)?for: |_(?:wait|interval): |\[)(?P<number>\d+)(?P<unit>[smh])\b"

    def shorter(found: re.Match[str]) -> str:
        return f"{found['before']}{int(found['number']) * MILLISECONDS[found['unit']] // SHORTER}ms"

    return re.sub(pattern, shorter, text)


class Receiver:
    """The notifications of Alertmanager in order, by receiver: the path of the request is its name."""

    def __init__(self) -> None:
        self.heard: dict[str, list[dict[str, Any]]] = {}

    def notifications(self, receiver: str) -> list[tuple[str, list[str]]]:
        """Each notification: its status, and the alerts in it."""
        return [
            (one["status"], sorted(alert["labels"]["alertname"] for alert in one["alerts"]))
            for one in self.heard.get(receiver, [])
        ]


@contextmanager
def listening(receiver: Receiver) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.heard.setdefault(self.path.strip("/"), []).append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@asynccontextmanager
async def alertmanager(folder: Path, receiver: Receiver) -> AsyncIterator[str]:
    """Its address, while it runs."""
    programs = await MonitoringPrograms.find()
    with listening(receiver) as url:
        config = yaml.safe_load(shortened(ALERTMANAGER.read_text(encoding="utf-8")))
        for one in config["receivers"]:
            one["webhook_configs"] = [{"url": f"{url}/{one['name']}"}]
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        command = [
            "env",
            f"--chdir={programs.alertmanager_folder}",
            str(programs.alertmanager),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
        async with running(command, folder / "alertmanager.log", address):
            yield address


@asynccontextmanager
async def prometheus(folder: Path, addresses: Mapping[str, str]) -> AsyncIterator[str]:
    """`addresses`: where the services of the compose file are to be found, by their name."""
    programs = await MonitoringPrograms.find()
    (folder / "rules").mkdir()
    for path in RULE_FILES:
        (folder / "rules" / path.name).write_text(shortened(path.read_text(encoding="utf-8")))
    text = shortened((OPS / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    for service, address in addresses.items():
        text = re.sub(rf'"{service}:\d+"', f'"{address}"', text)
    (folder / "prometheus.yml").write_text(text)
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(programs.prometheus),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
    ]
    async with running(command, folder / "prometheus.log", address):
        yield address


@asynccontextmanager
async def running(command: list[str], log: Path, address: str) -> AsyncIterator[None]:
    process = OwnedProcess(command, environment=dict(os.environ), log=log)

    async def is_ready() -> bool:
        assert process.is_running, process.log_tail()
        try:
            return (await asked(address, "/-/ready")).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    try:
        await eventually(is_ready, timeout=60, every=0.1)
        yield
    finally:
        await process.kill()


async def asked(address: str, path: str, **parameters: str) -> httpx.Response:
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        return await client.get(f"http://{address}{path}", params=parameters)


async def value_of(address: str, query: str) -> float | None:
    """What Prometheus answers; None when there is no such series."""
    result = (await asked(address, "/api/v1/query", query=query)).json()["data"]["result"]
    return float(result[0]["value"][1]) if result else None
