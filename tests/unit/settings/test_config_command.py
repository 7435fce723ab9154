"""`config check` and `config show`, as an operator and as a script see them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dlq_handler.cli.config import app
from dlq_handler.settings.keys import known_keys

run = CliRunner().invoke


def test_check_names_the_files_and_the_variables_and_says_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config.yaml").write_text("executor: {scheduled_timeout: 600}")
    monkeypatch.setenv("ATTUNE__DLQ_HANDLER__HTTP__PORT", "1")

    result = run(app, ["check"])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "files: config.yaml",
        "variable: ATTUNE__DLQ_HANDLER__HTTP__PORT",
        "ok",
    ]


def test_check_prints_one_line_per_problem_and_exits_78() -> None:
    Path("a.yaml").write_text("dlq_handler:\n  http: {port: x}\n  htp: 1\n")

    result = run(app, ["check", "--config", "a.yaml"])

    assert result.exit_code == 78
    assert [line.partition(" is")[0] for line in result.stdout.splitlines()] == [
        "files: a.yaml",
        "problem: a.yaml:2: dlq_handler.http.port",
        "problem: a.yaml:3: dlq_handler.htp",
        "2 to correct",
    ]


@pytest.mark.parametrize(("text", "ok", "exit_code"), [("{}", True, 0), ("dlq_handler: {htp: 1}", False, 78)])
def test_check_as_json_has_the_same_shape_either_way(text: str, ok: bool, exit_code: int) -> None:
    Path("a.yaml").write_text(text)

    result = run(app, ["check", "--config", "a.yaml", "--output", "json"])

    printed = json.loads(result.stdout)
    assert (result.exit_code, printed["ok"], printed["files"]) == (exit_code, ok, ["a.yaml"])
    assert [problem["key"] for problem in printed["problems"]] == ([] if ok else ["dlq_handler.htp"])
    assert isinstance(printed["warnings"], list)


def test_show_prints_every_setting_redacted_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config.yaml").write_text("\n\ndatabase:\n  url: postgresql://u:S3CRET@h/d\n")
    monkeypatch.setenv("ATTUNE__DLQ_HANDLER__BATCH__SIZE", "7")

    text, as_json = run(app, ["show"]), run(app, ["show", "--output", "json"])

    shown = {
        setting["key"]: (setting["value"], setting["origin"])
        for setting in json.loads(as_json.stdout)["settings"]
    }
    assert shown["database.url"] == ("postgresql://u:***@h/d", "config.yaml:4")
    assert shown["dlq_handler.batch.size"] == (7, "ATTUNE__DLQ_HANDLER__BATCH__SIZE")
    assert shown["dlq_handler.prefetch"] == (21, "derived")
    assert shown["dlq_handler.http.port"] == (9464, "default")
    assert shown["dlq_handler.broker.management_url"] == ("http://guest:***@localhost:15672", "derived")
    assert list(shown) == [key.name for key in known_keys().values()]
    assert text.stdout.startswith("files: config.yaml\n")
    assert "S3CRET" not in text.output + as_json.output
    assert all(name in text.stdout for name in shown)


def test_show_prints_the_timeout_in_force_and_not_the_one_that_is_too_short() -> None:
    def shown() -> tuple[object, str]:
        settings = json.loads(run(app, ["show", "--output", "json"]).stdout)["settings"]
        return next(
            (one["value"], one["origin"]) for one in settings if one["key"] == "executor.scheduled_timeout"
        )

    Path("config.yaml").write_text("database:\n  url: postgresql://u@h/d\n")
    assert shown() == (330, "derived"), "the TTL of 300 s and the grace of 30 s"
    Path("config.yaml").write_text("executor:\n  scheduled_timeout: 120\n")
    assert shown() == (330, "config.yaml:2, raised")
    Path("config.yaml").write_text("executor:\n  scheduled_timeout: 400\n")
    assert shown() == (400, "config.yaml:2")


def test_show_refuses_what_check_refuses() -> None:
    result = run(app, ["show", "--config", "nowhere.yaml"])

    assert result.exit_code == 78
    assert result.stdout == ""
    assert result.stderr.startswith("nowhere.yaml does not exist")


def test_it_runs_as_a_module_and_is_plain_and_whole_in_a_pipe() -> None:
    command = [sys.executable, "-m", "dlq_handler", "config", "show"]
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root, "COLUMNS": "20", "FORCE_COLOR": "1"}

    result = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)

    assert "\x1b" not in result.stdout
    assert re.search(
        r"dlq_handler\.worker\.routing_key_pattern\texecution\.dispatch\.worker\.\{id\}", result.stdout
    )
