"""The folders are the data-flow picture: imports go one way, and each outside library has one home.

Read from the source, so that also an import inside a function counts and nothing has to be importable.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dlq_handler"

# From the ground up: a part may import what is below it, and itself. Parts on one floor do not know each
# other.
FLOORS: list[set[str]] = [
    {"domain"},
    {"errors", "clock", "waiting", "tasks", "heartbeat", "logs", "settings"},
    {"broker", "store"},
    {"services"},
    {"compose"},
    {"surface"},
    {"app"},
    {"main"},
    {"__main__"},
]
# The floor of small things everyone may use; they may use one another.
SHARED = FLOORS[1]
OUTSIDE = {"sandbox"}

HOMES = {
    "aio_pika": "broker",
    "aiormq": "broker",
    "pamqp": "broker",
    "sqlalchemy": "store",
    "asyncpg": "store",
    "alembic": "store",
}

# What would let a clock, chance, or the world into a decision.
IMPURE_MODULES = {
    "asyncio",
    "io",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "time",
}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "print", "open", "input"}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def sources(*parts: str) -> list[Path]:
    return [path for path in SOURCES if part_of(path) in parts]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that is imported, with its line. `from a import b` counts as a.b: b may be a module."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full, from dlq_handler on"
            for name in node.names:
                yield node.lineno, f"{node.module}.{name.name}"


def own_parts(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of this package that `path` imports."""
    for line, module in imports(path):
        package, _, rest = module.partition(".")
        part = rest.partition(".")[0]
        # `from dlq_handler import __version__` imports no part.
        if package == "dlq_handler" and part and not part.startswith("__"):
            yield line, part


def floor_of(part: str) -> int:
    return next(floor for floor, parts in enumerate(FLOORS) if part in parts)


def is_allowed(importer: str, imported: str) -> bool:
    if importer == imported or (importer in SHARED and imported in SHARED):
        return True
    return floor_of(imported) < floor_of(importer)


def test_every_part_has_its_floor() -> None:
    known = set[str]().union(*FLOORS, OUTSIDE, {"__init__"})
    assert {part_of(path) for path in SOURCES} <= known


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {part_of(path)} imports {imported}"
        for path in SOURCES
        if part_of(path) not in OUTSIDE | {"__init__"}
        for line, imported in own_parts(path)
        if imported not in OUTSIDE and not is_allowed(part_of(path), imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_imports_the_sandbox() -> None:
    allowed = PACKAGE / "surface" / "cli"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports the sandbox"
        for path in SOURCES
        if part_of(path) not in OUTSIDE and not path.is_relative_to(allowed)
        for line, imported in own_parts(path)
        if imported in OUTSIDE
    ]
    assert not wrong, "\n".join(wrong)


def test_those_who_witness_against_the_sidecar_import_nothing_of_it() -> None:
    """The reference Attune, its times and the auditor: what they share with us they could not see wrong."""
    sandbox = PACKAGE / "sandbox"
    witnesses = [sandbox / "times.py", *sandbox.glob("attune/**/*.py"), *sandbox.glob("auditor/**/*.py")]
    assert len(witnesses) > 30
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {imported}"
        for path in witnesses
        for line, imported in own_parts(path)
        if imported not in OUTSIDE
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_library_has_one_home(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {library}, which only {HOMES[library]}/ may"
        for path in SOURCES
        if part_of(path) not in OUTSIDE | {HOMES[library]}
        for line, module in imports(path)
        if module.partition(".")[0] == library
    ]
    assert not wrong, "\n".join(wrong)


def test_the_domain_uses_nothing_but_the_standard_library_and_itself() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in sources("domain")
        for line, module in imports(path)
        if not module.startswith("dlq_handler.domain.")
        and (
            module.partition(".")[0] not in sys.stdlib_module_names
            or module.partition(".")[0] in IMPURE_MODULES
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_domain_awaits_nothing_and_asks_neither_clock_nor_chance() -> None:
    wrong = []
    for path in sources("domain"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ""
            if isinstance(node, ast.AsyncFunctionDef | ast.Await):
                called = "await"
            elif isinstance(node, ast.Call):
                function = node.func
                called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if called == "await" or called in IMPURE_CALLS:
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {called}")
    assert not wrong, "\n".join(wrong)


def test_only_tasks_asks_whether_a_task_is_cancelled_and_makes_task_groups() -> None:
    """A failed `asyncio.TaskGroup` leaves `cancelling() == 1` behind up to Python 3.12; `task_group` does not."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}; use dlq_handler.tasks"
        for path in SOURCES
        if part_of(path) not in OUTSIDE | {"tasks"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"TaskGroup", "cancelling", "uncancel"}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_service_has_a_heartbeat() -> None:
    """Each `run(stop)` is a loop of `every`, or registers its own; /healthz knows no other loops."""
    services = [
        node
        for path in sources("services")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and "Protocol" not in {ast.unparse(base) for base in node.bases}
    ]
    runs = {
        service.name: ast.unparse(node)
        for service in services
        for node in service.body
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "run" and node.args.args[-1].arg == "stop"
    }
    assert len(runs) > 10
    wrong = [name for name, source in runs.items() if "every(" not in source and "heartbeat(" not in source]
    assert not wrong


def test_no_module_is_two_things() -> None:
    """Above 300 lines a module is two things (style)."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in SOURCES
        if (lines := path.read_text().count("\n")) > 300
    }
    assert not long
