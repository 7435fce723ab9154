"""Each test has a folder and an environment of its own: settings are read from both."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith("ATTUNE")]:
        monkeypatch.delenv(name)
    return tmp_path
