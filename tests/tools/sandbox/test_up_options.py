"""What `./run up` is asked for reaches the stage: through the command, the keeper that it starts, and its arguments."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.stage import __main__ as commands
from sandbox.stage import keeper
from sandbox.stage.folder import FolderTaken
from sandbox.stage.programs import WITHOUT_TIMEOUT_MONITOR, Addresses, sidecar_settings
from sandbox.times import SCALED, STOCK

THIS_FILE = Path(__file__).resolve()  # readable, which is all that is asked before the sidecar reads it
MONITOR = "ATTUNE__EXECUTOR__ENABLE_TIMEOUT_MONITOR"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], {"times": SCALED, "cured": ["D15"], "attune_settings": {}, "config": None}),
        (
            ["--no-timeout-monitor"],
            {"times": SCALED, "cured": ["D15"], "attune_settings": {MONITOR: "false"}, "config": None},
        ),
        (["--cured", ""], {"times": SCALED, "cured": [], "attune_settings": {}, "config": None}),
        (
            ["--times", "stock", "--cured", "D1,D9"],
            {"times": STOCK, "cured": ["D1", "D9"], "attune_settings": {}, "config": None},
        ),
        (
            ["--config", str(THIS_FILE)],
            {"times": SCALED, "cured": ["D15"], "attune_settings": {}, "config": THIS_FILE},
        ),
    ],
)
def test_options_of_up_reach_the_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], wanted: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {}

    def up(folder: Path, passed: Sequence[str], _config: Path | None) -> int:
        monkeypatch.setattr(sys, "argv", ["keeper", str(folder), *passed])
        return keeper.main()

    def open_stage(_folder: Path, **wishes: Any) -> object:
        asked.update(wishes)
        raise FolderTaken(tmp_path)  # enough seen

    monkeypatch.setenv(commands.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("sandbox.stage.up_and_down.up", up)
    monkeypatch.setattr("sandbox.stage.stage.Stage.open", open_stage)
    commands.main(["up", *options])
    asked.pop("print_line")
    assert asked == wanted


def test_the_sidecar_reads_the_settings_that_attune_was_started_with(tmp_path: Path) -> None:
    """Else it reports that Attune's timeout monitor is on, which was switched off."""
    addresses = Addresses(
        amqp_url="amqp://127.0.0.1/",
        management_url="http://127.0.0.1:15672",
        database_url="postgresql://127.0.0.1/attune",
        api_host="127.0.0.1",
        api_port=1,
        api_token="sandbox",
        ops_host="127.0.0.1",
        ops_port=2,
        ui_port=3,
    )
    for chosen in ({}, WITHOUT_TIMEOUT_MONITOR):
        read = sidecar_settings(
            addresses, SCALED, tmp_path / "none.yaml", cured=frozenset(), attune_settings=chosen
        )
        assert {name: read[name] for name in read if name == MONITOR} == chosen
