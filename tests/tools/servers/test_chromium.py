"""Which Chromium is taken, and what is said when there is none. Played by scripts; tests/browser uses a real one."""

from pathlib import Path

import pytest

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable
from tests.support import chromium_program as chromium
from tests.support.chromium_program import ChromiumProgram


def play(path: Path, text: str = "echo Chromium 1.2") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


async def test_the_named_one_is_taken_before_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = play(tmp_path / "programs" / "chromium")
    assert (await ChromiumProgram.find()).path == on_path
    named = play(tmp_path / "mine")
    monkeypatch.setenv(chromium.VARIABLE, str(named))
    assert (await ChromiumProgram.find()).path == named


async def test_a_named_one_that_does_not_start_is_an_error_and_no_other_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path / "programs" / "chromium")
    monkeypatch.setenv(chromium.VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(SourceUnavailable, match=f"{chromium.VARIABLE}=.*missing, but that does not start"):
        await ChromiumProgram.find()


async def test_without_any_the_error_names_every_way_and_what_to_do(tmp_path: Path) -> None:
    play(tmp_path / "programs" / "chromium-browser", "echo install the snap >&2; exit 1")
    with pytest.raises(SourceUnavailable) as nowhere:
        await ChromiumProgram.find()
    said = str(nowhere.value)
    assert "install the snap" in said
    assert "not a Debian" in said
    assert f"{chromium.VARIABLE}=/path/to/chromium" in said


async def test_the_unpacked_one_is_led_to_its_libraries_and_fonts(tmp_path: Path) -> None:
    root = packages.cache_folder() / chromium.PACKAGE
    play(root / "usr" / "lib" / "chromium" / chromium.PACKAGE)
    (root / "usr" / "lib" / "x86_64-linux-gnu" / "pulseaudio").mkdir(parents=True)
    for program in ("apt-get", "dpkg-deb"):
        play(tmp_path / "programs" / program)
    found = await ChromiumProgram.find()
    assert found.variables["FONTCONFIG_FILE"] == str(root / chromium.FONT_SETTINGS)
    assert found.variables["LD_LIBRARY_PATH"].split(":") == [
        str(root / "usr" / "lib" / "x86_64-linux-gnu"),
        str(root / "usr" / "lib" / "x86_64-linux-gnu" / "pulseaudio"),
    ]
