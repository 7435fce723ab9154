"""A real Prometheus and a real Alertmanager on the files of ops/, and somebody who is paged.

Of these files nothing is changed but durations, to a twentieth, as the sandbox's own times are; and addresses.
"""

import json
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from sandbox.servers.owned_process import OwnedProcess
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually
from tests.support.monitoring_programs import MonitoringPrograms
from tests.support.ops_files import ALERTMANAGER, OPS, RULE_FILES

SHORTER = 20
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}


def shortened(text: str) -> str:
    """Every duration of a rule or a configuration file, and nothing else."""
    pattern = r"(?P<before>\b(?:keep_firing_)?for: |_(?:wait|interval): |\[)(?P<number>\d+)(?P<unit>[smh])\b"

    def shorter(found: re.Match[str]) -> str:
        return f"{found['before']}{int(found['number']) * MILLISECONDS[found['unit']] // SHORTER}ms"

    return re.sub(pattern, shorter, text)


class Receiver:
    """What Alertmanager told whom, in order: by the path it was told at, which is the receiver's name."""

    def __init__(self) -> None:
        self.heard: dict[str, list[dict[str, Any]]] = {}

    def told(self, receiver: str) -> list[tuple[str, list[str]]]:
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
