"""Other versions of the AMQP libraries are refused at the start, with a clear error."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import aiormq.channel
import aiormq.connection
import pamqp.commands
import pamqp.decode
import pytest

from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.broker.client.supported import INTERNALS, Internal, assert_supported, is_there
from dlq_handler.errors import UnsupportedLibrary

# Nothing answers at these addresses, and no port is given away.
CONFIG = """
database: {url: "postgresql://user@127.0.0.1:1/none"}
message_queue: {url: "amqp://127.0.0.1:1/"}
dlq_handler: {http: {port: 0}, ui: {enabled: false}}
"""


@pytest.mark.parametrize("internal", INTERNALS, ids=str)
def test_installed_libraries_have_what_is_relied_on(internal: Internal) -> None:
    assert is_there(internal)


def _channel_without_tags(self: object, queue: str, consumer_callback: object, arguments: object) -> None:
    """`basic_consume` of a version without the parameter consumer_tag."""


async def _reader_with_another_queue(self: aiormq.connection.Connection) -> None:
    """The connection's reader of a version that keeps frames elsewhere."""
    for channel in self.channels.values():
        channel.incoming.put_nowait(None)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("owner", "name", "changed", "missing"),
    [
        (
            aiormq.channel.Channel,
            "_on_confirm_frame",
            None,
            "aiormq.channel.Channel._on_confirm_frame",
        ),
        (
            aiormq.channel.Channel,
            "basic_consume",
            _channel_without_tags,
            "aiormq.channel.Channel.basic_consume",
        ),
        (
            aiormq.connection.Connection,
            "_Connection__reader",
            _reader_with_another_queue,
            "aiormq.connection.Connection._Connection__reader",
        ),
        (
            pamqp.commands.Basic.Deliver,
            "__slots__",
            ["delivery_tag", "consumer_tag"],
            "pamqp.commands.Basic.Deliver.__slots__",
        ),
        (pamqp.decode, "METHODS", {}, "pamqp.decode.METHODS"),
    ],
)
def test_missing_or_changed_internal_is_named_with_library_and_version(
    owner: object, name: str, changed: object, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if changed is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, changed)

    with pytest.raises(UnsupportedLibrary) as refused:
        assert_supported()

    error, library = refused.value, missing.partition(".")[0]
    assert (error.library, error.version, error.missing) == (library, metadata.version(library), missing)
    assert error.required.startswith(library)
    assert all(fact in str(error) for fact in (error.library, error.version, error.missing, error.required))
    with pytest.raises(UnsupportedLibrary):
        BrokerAddress(urls=["amqp://127.0.0.1:1/"])


def test_missing_module_is_unsupported() -> None:
    assert not is_there(Internal("pamqp.no_such_module", "anything"))


@pytest.mark.parametrize(
    ("lacking", "missing"),
    [
        ("aiormq.channel.Channel._on_deliver_frame", "aiormq.channel.Channel._on_deliver_frame"),
        # Imported by name, so the import fails before anything can be checked.
        ("aiormq.connection.TransportFactory", "aiormq.connection.TransportFactory.create"),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["doctor"]], ids=" ".join)
def test_program_ends_with_exit_code_78_and_without_a_trace(
    lacking: str, missing: str, command: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    program = (
        f"import sys, aiormq.channel, aiormq.connection; del {lacking}\n"
        f"sys.argv = ['dlq-handler', *{command!r}, '--config', {str(config)!r}]\n"
        "from dlq_handler.__main__ import main; main()"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    said = ended.stdout + ended.stderr
    assert ended.returncode == 78, said
    assert "aiormq" in said
    assert missing in said
    assert metadata.version("aiormq") in said
    assert "Traceback" not in said
