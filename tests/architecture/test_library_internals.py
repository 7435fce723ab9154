"""Only broker/client/ relies on internals of the AMQP libraries. Read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_handler.broker.client.supported import INTERNALS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dlq_handler"
CLIENT = PACKAGE / "broker" / "client"
LIBRARIES = {"aio_pika", "aiormq", "pamqp"}

# Values, exceptions and interfaces that the libraries document.
PUBLIC_MODULES = {
    "aio_pika",
    "aio_pika.abc",
    "aiormq.abc",
    "aiormq.exceptions",
    "pamqp.commands",
    "pamqp.header",
}

# Types and functions for frames, which broker/client/ uses as they are documented.
FRAME_MODULES = {"pamqp", "pamqp.body", "pamqp.common", "pamqp.frame"}

# Attributes of the libraries' objects that broker/client/ wraps. The type of an object cannot be read from the source,
# so these names are for nothing else in broker/.
PRIVATE_ATTRIBUTES = {
    "METHODS",
    "channels",
    "connection_tune",
    "frames",
    "kwargs",
    "max_content_size",
    "on_consumer_cancel_callbacks",
    "on_return_callbacks",
    "rpc_frames",
    "transport",
    "underlay",
    "unmarshal",
    "write_queue",
}


def others(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if not path.is_relative_to(CLIENT)]


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, module, and the name that is bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name, one.asname or one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                (node.lineno, f"{node.module}:{one.name}", one.asname or one.name) for one in node.names
            )


def violations(source: str) -> Iterator[tuple[int, str]]:
    """What a module outside broker/client/ must not do."""
    tree = ast.parse(source)
    from_libraries = set()
    for line, target, name in imported(tree):
        module, _, item = target.partition(":")
        if module.partition(".")[0] not in LIBRARIES:
            continue
        from_libraries.add(name)
        if module not in PUBLIC_MODULES or item.startswith("_"):
            yield line, f"imports {target.replace(':', '.')}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).partition(".")[0] for base in node.bases}
            if bases & from_libraries:
                yield node.lineno, f"class {node.name} extends a class of a library"
        elif isinstance(node, ast.Attribute) and node.attr in PRIVATE_ATTRIBUTES:
            yield node.lineno, f"uses .{node.attr}"
        elif isinstance(node, ast.Constant) and node.value in PRIVATE_ATTRIBUTES:
            yield node.lineno, f"names {node.value!r}"


def test_only_the_client_folder_uses_internals_of_the_amqp_libraries() -> None:
    files = others(PACKAGE / "broker")
    assert len(files) > 15
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {what}; broker/client/ wraps it"
        for path in files
        for line, what in violations(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_private_names_of_the_libraries_are_used_nowhere_else() -> None:
    """In the whole package: an object of a library may reach any module without an import."""
    private = {
        name
        for internal in INTERNALS
        for name in (*internal.path.split("."), *internal.uses)
        if name.startswith("_") and not name.endswith("__")
    }
    assert "_on_deliver_frame" in private
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: uses .{node.attr}"
        for path in others(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in private
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert not wrong, "\n".join(wrong)


def test_every_private_import_of_the_client_folder_is_checked_at_the_start() -> None:
    """A module that is not documented may move: the check at the start must know it."""
    checked = {internal.module for internal in INTERNALS}
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {target.replace(':', '.')} is in no row of INTERNALS"
        for path in sorted(CLIENT.glob("*.py"))
        for line, target, _ in imported(ast.parse(path.read_text()))
        if (module := target.partition(":")[0]).partition(".")[0] in LIBRARIES
        and module not in PUBLIC_MODULES | checked | FRAME_MODULES
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from aiormq.exceptions import AMQPError", []),
        ("from aiormq.channel import Channel", ["imports aiormq.channel.Channel"]),
        ("from aiormq.abc import _Hidden", ["imports aiormq.abc._Hidden"]),
        ("import aiormq.connection", ["imports aiormq.connection"]),
        ("import aio_pika\nclass Own(aio_pika.Connection): pass", ["class Own extends a class of a library"]),
        ("await channel.frames.put(1)", ["uses .frames"]),
        ("getattr(channel, 'write_queue')", ["names 'write_queue'"]),
        ("from dlq_handler.broker.client.connection import Connection\nclass Own(Connection): pass", []),
    ],
)
def test_violations_are_recognized(source: str, found: list[str]) -> None:
    assert [what for _, what in violations(source)] == found
