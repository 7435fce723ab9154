"""Statements of the documents that a test can hold to the code."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.settings import Settings, load
from dlq_handler.topology.blueprint import broker_permissions

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlq_handler"


def document(path: str) -> str:
    """As one line, so that a sentence is found however its lines are broken."""
    return " ".join((ROOT / path).read_text().split())


def settings(**variables: str) -> Settings:
    names = {f"ATTUNE__DLQ_HANDLER__{name.upper()}": value for name, value in variables.items()}
    return load(None, {"ATTUNE__DATABASE__URL": "postgresql://u@h/d"} | names).settings


def section(path: str, heading: str) -> str:
    text = (ROOT / path).read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    shown = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one).strip().lower() for one in headings)
    return {re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in shown}


def test_every_link_between_pages_leads_to_a_file_and_a_heading_that_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    broken, checked = [], 0
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            there = (page.parent / name).resolve() if name else page
            checked += 1
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert checked > 100
    assert broken == []


def test_every_path_that_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    missing, checked = [], 0
    for page in pages:
        for path in re.findall(r"`([a-z_]+/[\w/.-]*\.(?:py|sql|sh|ya?ml|json))`", page.read_text()):
            checked += 1
            if not (ROOT / path).exists() and not (PACKAGE / path).exists():
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert checked > 50
    assert missing == []


def test_every_test_that_a_page_names_exists() -> None:
    """The proof of a promise, or of a case of stock Attune, must be there to run."""
    paths = list((ROOT / "tests").rglob("*.py"))
    functions = [name for path in paths for name in re.findall(r"def (test_\w+)\(", path.read_text())]
    known = {*functions, *(path.name for path in paths)}
    named = {
        name
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"`(test_\w+(?:\.py)?)`", page.read_text())
    }
    assert named
    assert named - known == set()


def test_pages_name_the_actor() -> None:
    """The reader on call must learn which component does something, and what to do."""
    vague = re.compile(r"\b(?:nobody|somebody|whoever|told|tells?|see to|we|us|ours?)\b", re.IGNORECASE)
    templates = PACKAGE / "dashboard" / "templates"
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *templates.rglob("*.html")]
    assert len(pages) > 60
    assert {page: found for page in pages if (found := vague.findall(page.read_text()))} == {}


def test_the_intake_queue_has_no_ttl_as_the_runbook_says() -> None:
    own = settings(intake__queue="attune.dlx.sidecar.queue")
    for blueprint in (own.blueprint, settings().blueprint):
        assert blueprint.arguments_of(blueprint.intake_queue) == {}
    assert "that queue has no TTL" in document("docs/runbook.md")


def test_the_runbook_reprocesses_only_outcomes_that_can_be_reprocessed() -> None:
    assert Outcome.UNREADABLE not in REPROCESSABLE
    assert "An `unreadable` dead letter cannot be processed again" in document("docs/runbook.md")
    named = re.findall(r"letters reprocess --outcome (\w+)", document("docs/runbook.md"))
    assert named
    assert set(named) <= {one.value for one in REPROCESSABLE}


def test_every_documented_configuration_for_attune_says_that_its_workers_never_reconnect() -> None:
    """Without it, what a crashed worker was running stays `running` for ever."""
    pages = [ROOT / "README.md", *(ROOT / "docs/how-to").rglob("*.md")]
    blocks = [
        (page.name, block)
        for page in pages
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    files = [*ROOT.glob("config.*.yaml"), *(ROOT / "deploy").glob("*.yaml"), ROOT / "docker-compose.yml"]
    texts = [*blocks, *((path.name, path.read_text()) for path in files)]
    # A configuration for Attune is known by the intake queue of its own.
    complete = re.compile(r"(?:queue: |INTAKE__QUEUE[=:] ?)attune\.dlx\.sidecar\.queue")
    found = [(name, text) for name, text in texts if complete.search(text)]
    known = {
        "README.md",
        "beside-attune.md",
        "config.docker.yaml",
        "config.development.yaml",
        "configmap.yaml",
    }
    assert known <= {name for name, _ in found}
    assert [name for name, text in found if not re.search(r"(?i)reconnects(?:: |=)false", text)] == []


def test_every_object_on_the_servers_is_named_with_the_way_to_remove_it() -> None:
    own = settings().dlq_handler
    added = {own.schema_name, own.shadow.queue} | own_broker_objects()
    assert {"dlq_handler.canary", "dlq_handler.publish_check.", "attune.dlx.sidecar.queue"} <= added
    before, _, off = (ROOT / "docs/how-to/beside-attune.md").read_text().partition("\n## Off again\n")
    table = "".join(line for line in before.splitlines() if line.startswith("|"))
    for name in added:
        assert f"`{name}" in table
        assert name in off


def own_broker_objects() -> set[str]:
    """Names, or how they begin, that dlq-handler may declare and that are not Attune's own."""
    blueprint = settings(intake__queue="attune.dlx.sidecar.queue").blueprint
    patterns = broker_permissions(blueprint, sends_canaries=True).configure.strip("^()$").split("|")
    names = {pattern.replace("\\", "").partition("[")[0] for pattern in patterns}
    attunes = {one.name for one in blueprint.exchanges} | {STOCK_QUEUE}
    return {name for name in names - attunes if not blueprint.workers.queue_pattern.startswith(name)}


def test_the_readme_is_in_plain_english_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert (
        re.findall(r"(?i)\b(?:nobody|somebody|whoever|decided?|vanish\w*|told|tells?|we|us|our)\b", text)
        == []
    )
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize(
    "page",
    [
        "config.development.yaml",
        "config.docker.yaml",
        "docker-compose.yml",
    ],
)
def test_page_names_dlq_handler_instead_of_we(page: str) -> None:
    found = re.findall(r"(?i).{0,40}\b(?:we|us|ours?)\b.{0,40}", (ROOT / page).read_text())
    assert found == []


def test_every_service_is_in_the_table_of_the_architecture() -> None:
    loops = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and _has_run(node)
    }
    table = section("docs/explanation/architecture.md", "The services")
    assert set(re.findall(r"`([A-Z]\w+)`", table)) - {"Gate", "Brake"} == loops - {"Service"}


def _has_run(node: ast.ClassDef) -> bool:
    return any(
        isinstance(one, ast.AsyncFunctionDef)
        and one.name == "run"
        and [a.arg for a in one.args.args] == ["self", "stop"]
        for one in node.body
    )


def test_pages_outlast_their_reason_where_the_documents_say_so() -> None:
    lasting = {
        name: {
            str(rule.get("keep_firing_for"))
            for group in yaml.safe_load((ROOT / "ops/prometheus/rules" / name).read_text())["groups"]
            for rule in group["rules"]
            if rule.get("labels", {}).get("severity") == "page"
        }
        for name in ("dlq-handler.yml", "rabbitmq.yml")
    }
    assert lasting["dlq-handler.yml"] <= {"2m", "3m", "4m", "5m"}
    assert lasting["rabbitmq.yml"] == {"None"}


def test_the_commands_for_kubernetes_name_deployments_and_containers_that_exist() -> None:
    there = {
        (one["metadata"]["name"], container["name"])
        for path in (ROOT / "deploy").rglob("*.yaml")
        for one in yaml.safe_load_all(path.read_text())
        if one and one["kind"] == "Deployment"
        for kind in ("containers", "initContainers")
        for container in one["spec"]["template"]["spec"].get(kind, ())
    }
    named = re.findall(
        r"kubectl exec deploy/(\S+)(?: -c (\S+))? --", (ROOT / "docs/how-to/kubernetes.md").read_text()
    )
    assert len(named) == 2
    for deployment, container in named:
        assert (deployment, container or "dlq-handler") in there
