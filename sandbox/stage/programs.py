"""The programs of a stage beside its servers: what each is started with, and when it counts as healthy."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandbox.attune.defects import Cured, Defect
from sandbox.attune.environment import Environment
from sandbox.attune.health import executor_health, worker_health
from sandbox.attune.topology import WorkerQueues, worker_queues
from sandbox.clean_environment import clean_environment
from sandbox.server_programs.errors import ProgramFailed
from sandbox.server_programs.program import ROOT_FOLDER, Client, output_of
from sandbox.stage import health
from sandbox.stage.folder import Folder
from sandbox.stage.part import PartFailed, ProgramPart
from sandbox.stage.parts import WORKERS
from sandbox.times import Times, sidecar_environment

SCHEMA = "attune"
# A stock executor consumes attune.dlx.queue: what it takes from there never comes to us.
INTAKE_QUEUE = "attune.dlx.sidecar.queue"
ATTUNE = (sys.executable, "-m", "sandbox.attune")
SIDECAR = (sys.executable, "-m", "dlq_handler", "run")
# Its help names what was typed, so that it can be typed again.
SIDECAR_COMMANDS = (sys.executable, "-c", "from dlq_handler.main import main; main('./run dlq-handler')")
MIGRATE_SECONDS = 120
# The defect that must be cured for any action with a limit to run at all: core.slow, and its line.
ADMISSION_WORKS = Defect.D15.name
# Of a worker: the owner of its queues.
QUEUES_OF_A_FLOW = {"SANDBOX_WORKER_QUEUES": WorkerQueues.FLOW.value}
QUEUES_OF_ITS_OWN = {"SANDBOX_WORKER_QUEUES": WorkerQueues.OWN.value}
# A setting of Attune's own. Its timeout monitor ends executions while their message can still be run (D12).
WITHOUT_TIMEOUT_MONITOR = {"ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    amqp_url: str
    management_url: str
    database_url: str
    api_host: str
    api_port: int
    api_token: str
    ops_host: str
    ops_port: int
    ui_port: int

    @property
    def api_url(self) -> str:
        return f"http://{self.api_host}:{self.api_port}"

    @property
    def ops_url(self) -> str:
        return f"http://{self.ops_host}:{self.ops_port}"

    @property
    def ui_url(self) -> str:
        return f"http://{self.ops_host}:{self.ui_port}"


async def migrate(database_url: str, folder: Folder, cured: Sequence[str]) -> None:
    """Install Attune's schema."""
    environment = clean_environment({**database_settings(database_url), "SANDBOX_CURED": ",".join(cured)})
    try:
        await output_of(*ATTUNE, "migrate", environment=environment, timeout=MIGRATE_SECONDS)
    except (ProgramFailed, TimeoutError) as failed:
        log = folder.log("migrate")
        log.write_text(f"{failed}\n")
        raise PartFailed("migrate", f"Attune's schema could not be installed: {failed}", log) from failed


def program_parts(
    addresses: Addresses,
    folder: Folder,
    times: Times,
    *,
    environment: Mapping[str, str],
    attune_settings: Mapping[str, str],
    sidecar_command: Sequence[str] | None,
    config: Path | None,
) -> dict[str, ProgramPart]:
    """`environment`: of Attune's. `config`: the sidecar's file; None: it reads none."""
    seen = Environment.read(environment)

    def attune(part: str, *arguments: str, check_health: health.HealthCheck) -> ProgramPart:
        command = [*ATTUNE, *arguments]
        return ProgramPart(command, environment=environment, log=folder.log(part), check_health=check_health)

    api = attune("api", "api", check_health=health.answering(f"{addresses.api_url}/health"))
    executor = attune("executor", "executor", check_health=health.well(partial(executor_health, seen)))
    workers = {
        name: attune(
            name,
            *("worker", name, "--runtime", runtime),
            check_health=health.well(partial(worker_health, seen, name)),
        )
        for name, runtime in WORKERS.items()
    }
    sidecar = ProgramPart(
        sidecar_command or SIDECAR,
        environment=clean_environment(
            sidecar_settings(
                addresses,
                times,
                config or folder.no_settings,
                cured=seen.cured,
                attune_settings=attune_settings,
            )
        ),
        log=folder.log("sidecar"),
        check_health=health.answering(f"{addresses.ops_url}/readyz"),
        start_in=config.parent if config else ROOT_FOLDER,
    )
    return {"api": api, "executor": executor, **workers, "sidecar": sidecar}


def attune_environment(addresses: Addresses, times: Times, cured: Sequence[str]) -> dict[str, str]:
    return clean_environment(
        {
            **database_settings(addresses.database_url),
            "ATTUNE__MESSAGE_QUEUE__URL": addresses.amqp_url,
            "SANDBOX_TIMES": times.name,
            "SANDBOX_CURED": ",".join(cured),
            "SANDBOX_API_HOST": addresses.api_host,
            "SANDBOX_API_PORT": str(addresses.api_port),
            "SANDBOX_API_TOKEN": addresses.api_token,
        }
    )


def sidecar_settings(
    addresses: Addresses,
    times: Times,
    config: Path,
    *,
    cured: Cured,
    attune_settings: Mapping[str, str],
) -> dict[str, str]:
    """Variables, which win over what the file says: it cannot name other servers.

    dlq-handler reads Attune's settings too: without `attune_settings` it reports that Attune's timeout monitor is on.
    """
    return {
        **attune_settings,
        # Named always: without a name the config.yaml of whatever folder it is called in is read.
        "ATTUNE_CONFIG": str(config),
        **sidecar_environment(times),
        **database_settings(addresses.database_url),
        "ATTUNE__MESSAGE_QUEUE__URL": addresses.amqp_url,
        # Empty by default, and then of no account; a file that names its own would win over the line above.
        "ATTUNE__DLQ_HANDLER__BROKER__URLS": addresses.amqp_url,
        "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": addresses.management_url,
        "ATTUNE__DLQ_HANDLER__INTAKE__QUEUE": INTAKE_QUEUE,
        "ATTUNE__DLQ_HANDLER__WORKER__RECONNECTS": str(Defect.NO_RECONNECT in cured).lower(),
        "ATTUNE__DLQ_HANDLER__LIFECYCLE__ENABLED": "true",
        "ATTUNE__DLQ_HANDLER__BLUEPRINTS": json.dumps({"worker": worker_blueprint(times)}),
        "ATTUNE__DLQ_HANDLER__HTTP__HOST": addresses.ops_host,
        "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(addresses.ops_port),
        "ATTUNE__DLQ_HANDLER__UI__HOST": addresses.ops_host,
        "ATTUNE__DLQ_HANDLER__UI__PORT": str(addresses.ui_port),
        "ATTUNE__DLQ_HANDLER__UI__ENVIRONMENT": "sandbox",
        "ATTUNE__DLQ_HANDLER__REPLICA_NAME": "sandbox",
    }


def worker_blueprint(times: Times) -> dict[str, object]:
    """As the shipped one, with these times: a queue that exists with another TTL is refused."""
    executions, *others = (
        {
            "name": queue.name,
            "exchange": queue.bindings[0][0],
            "keys": [key for _, key in queue.bindings],
            "dlx": queue.arguments["x-dead-letter-exchange"],
            "ttl_ms": queue.arguments.get("x-message-ttl"),
        }
        for queue in worker_queues("{id}", times.worker_queue_ttl_ms)
    )
    return {
        "params": ["id"],
        "worker": "id",
        "flow": [
            {**executions, "contents": "decide"},
            *({**queue, "contents": "archive"} for queue in others),
        ],
    }


def sidecar_client(
    addresses: Addresses,
    folder: Folder,
    times: Times,
    config: Path | None,
    *,
    cured: Cured,
    attune_settings: Mapping[str, str],
) -> Client:
    """The sidecar's own commands, against this stage."""
    return Client(
        command=SIDECAR_COMMANDS,
        environment=sidecar_settings(
            addresses, times, config or folder.no_settings, cured=cured, attune_settings=attune_settings
        ),
        start_in=str(config.parent) if config else None,
    )


def database_settings(database_url: str) -> dict[str, str]:
    return {"ATTUNE__DATABASE__URL": database_url, "ATTUNE__DATABASE__SCHEMA": SCHEMA}
