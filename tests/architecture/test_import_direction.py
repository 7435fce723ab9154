"""One room for each subject: imports go one way, and each outside library has one home.

Read from the source, so that also an import inside a function counts and nothing has to be importable.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dlq_handler"

# Each room may import the rooms below it, and itself. Rooms on one line do not import each other.
ROOMS: list[set[str]] = [
    {"__main__"},
    {"main"},
    {"run"},
    {"app"},
    {"lifecycle_services", "timeout_services", "ui"},
    {"cli"},
    {"rooms"},
    {"settings"},
    {"api", "dashboard"},
    {"web"},
    {"diagnosis", "explain", "operations"},
    {"lifecycle"},
    {"timeouts"},
    {"dead_letters"},
    {"topology"},
    {"endings"},
    {"history"},
    {"workers"},
    {"safety"},
    {"host"},
    {"broker", "database"},
]
# Modules beside the rooms. Every room may use them; they use only one another.
FLOOR = {path.stem for path in PACKAGE.glob("*.py")} - set[str]().union(*ROOMS)
SANDBOX = ROOT / "sandbox"

# Rooms of subjects. Their modules are of three kinds: decisions and values, statements (`*_sql.py`), services.
SUBJECTS = set[str]().union(
    *ROOMS[ROOMS.index({"diagnosis", "explain", "operations"}) : ROOMS.index({"broker", "database"})]
)

HOMES = {
    "aio_pika": "broker",
    "aiormq": "broker",
    "pamqp": "broker",
    "asyncpg": "database",
    "alembic": "database",
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
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full"
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


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def own_modules(path: Path) -> Iterator[str]:
    """The modules of this package that `path` imports."""
    known = {module_of(source) for source in SOURCES}
    for _, name in imports(path):
        package, _, module = name.partition(".")
        if package == "dlq_handler":
            yield module if module in known else module.rpartition(".")[0]


def room_of(module: str) -> str:
    return module.partition(".")[0]


def rank_of(room: str) -> int:
    return next(rank for rank, rooms in enumerate([*ROOMS, FLOOR]) if room in rooms)


def is_allowed(importer: str, imported: str) -> bool:
    return importer == imported or {importer, imported} <= FLOOR or rank_of(imported) > rank_of(importer)


def test_every_module_is_in_a_room() -> None:
    assert {part_of(path) for path in SOURCES} <= set[str]().union(*ROOMS, FLOOR)


def test_imports_go_one_way() -> None:
    wrong = {
        f"{module_of(path)} -> {imported}"
        for path in SOURCES
        for imported in own_modules(path)
        if imported and not is_allowed(part_of(path), room_of(imported))
    }
    assert sorted(wrong) == []


def test_the_product_and_the_sandbox_import_nothing_of_each_other() -> None:
    """The sandbox is not installed with the product, and a witness cannot see faults in code that it shares."""
    pairs = [(SOURCES, "sandbox"), (sorted(SANDBOX.rglob("*.py")), "dlq_handler")]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for files, other in pairs
        for path in files
        for line, module in imports(path)
        if module.partition(".")[0] == other
    ]
    assert all(len(files) > 50 for files, _ in pairs)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_library_has_one_home(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {library}, which only {HOMES[library]}/ may"
        for path in SOURCES
        if part_of(path) != HOMES[library]
        for line, module in imports(path)
        if module.partition(".")[0] == library
    ]
    assert not wrong, "\n".join(wrong)


def is_async(path: Path) -> bool:
    return any(
        isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(path.read_text()))
    )


def decisions() -> list[Path]:
    """Modules of a subject that await nothing: decisions and values.

    `log.py` writes log lines for services, `options.py` holds the settings sections of the room.
    """
    others = ("_sql", "log", "options")
    return [path for path in sources(*SUBJECTS) if not is_async(path) and not path.stem.endswith(others)]


def test_decisions_use_nothing_but_the_standard_library_and_the_product() -> None:
    assert len(decisions()) > 30
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: imports {module}"
        for path in decisions()
        for line, module in imports(path)
        if (library := module.partition(".")[0]) != "dlq_handler"
        and (library not in sys.stdlib_module_names or library in IMPURE_MODULES)
    ]
    assert not wrong, "\n".join(wrong)


def test_decisions_ask_neither_clock_nor_chance() -> None:
    wrong = []
    for path in decisions():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                function = node.func
                called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if called in IMPURE_CALLS:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {called}")
    assert not wrong, "\n".join(wrong)


def test_sql_is_in_modules_that_are_named_for_it() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: a statement outside *_sql.py"
        for path in sources(*SUBJECTS, "web", "api", "dashboard", "cli", "settings", "app")
        if not path.stem.endswith("_sql")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"run", "row", "rows"}
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "tx"
    ]
    assert not wrong, "\n".join(wrong)


def test_only_tasks_asks_whether_a_task_is_cancelled_and_makes_task_groups() -> None:
    """A failed `asyncio.TaskGroup` leaves `cancelling() == 1` behind up to Python 3.12; `task_group` does not."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}; use dlq_handler.tasks"
        for path in SOURCES
        if part_of(path) != "tasks"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"TaskGroup", "cancelling", "uncancel"}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_service_has_a_heartbeat() -> None:
    """Each `run(stop)` is a loop of `every`, or registers its own; /healthz knows no other loops."""
    services = [
        node
        for path in sources(*SUBJECTS, *FLOOR, "broker", "database", "web")
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
    # It answers /healthz itself: when its loop stands still, there is no answer.
    del runs["WebServer"]
    wrong = [name for name, source in runs.items() if "every(" not in source and "heartbeat(" not in source]
    assert not wrong


def test_no_module_is_two_things() -> None:
    """Above 400 lines a module is probably two things (style)."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in SOURCES
        if (lines := path.read_text().count("\n")) > 400
    }
    assert not long


def test_no_two_public_classes_have_one_name() -> None:
    """A reader who meets a name must not have to look up which of two things it is."""
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text(), str(path)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module_of(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
