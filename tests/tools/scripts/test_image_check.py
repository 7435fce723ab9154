"""What `./run image-check` decides without building: what is lent to a build, and what must not be left of it."""

from pathlib import Path
from typing import Any

import pytest

from scripts.image_check import lent_pip
from scripts.image_check.failed import CheckFailed
from scripts.image_check.image import Image
from scripts.image_check.lent_pip import LentPip


async def lent(listed: str, monkeypatch: pytest.MonkeyPatch) -> LentPip:
    async def output_of(*_: str) -> str:
        return listed

    monkeypatch.setattr(lent_pip, "output_of", output_of)
    return await LentPip.of_this_machine()


async def test_pip_settings_are_weighed_as_pip_does(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (
        ":env:.index-url='https://from.variable.example/simple'\n"
        "global.index-url='https://from.file.example/simple'\n"
        "install.timeout='7'\n"
        "global.timeout='5'\n"
        "global.require-virtualenv='true'\n"
    )
    pip = await lent(listed, monkeypatch)
    assert pip.conf == "[global]\nindex-url = https://from.variable.example/simple\ntimeout = 7\n"
    assert pip.paths == []


async def test_local_files_that_it_names_are_lent_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("wheels", "index/simple"):
        (tmp_path / folder).mkdir(parents=True)
    listed = (
        f"global.find-links='{tmp_path}/wheels\\n/not/here'\n"
        f"global.extra-index-url='file://{tmp_path}/index/simple https://one.example/simple'\n"
    )
    pip = await lent(listed, monkeypatch)
    assert pip.paths == [tmp_path / "index", tmp_path / "wheels"]
    assert f"find-links = {tmp_path}/wheels /not/here\n" in pip.conf


def inspected(**config: Any) -> dict[str, Any]:
    usual = {
        "Env": ["PATH=/bin"],
        "Entrypoint": ["dlq-handler"],
        "Cmd": ["run"],
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["CMD", "dlq-handler", "health"], "Timeout": 5_000_000_000},
        "User": "65532:65532",
    }
    return {"Docker": {"config": usual | config}}


@pytest.mark.parametrize("user", ["", "root", "0:0", "nobody", "65532"])
def test_an_image_of_root_or_of_a_name_is_refused(user: str) -> None:
    with pytest.raises(CheckFailed, match="two numbers that are not root's"):
        Image(inspected(User=user))


@pytest.mark.parametrize(
    "file", ["etc/pip.conf", "opt/dlq-handler/bin/pip", "opt/dlq-handler/lib/python3.11/site-packages/pip"]
)
def test_a_build_tool_in_the_image_is_refused(file: str, tmp_path: Path) -> None:
    pip = LentPip(values={"timeout": "5"})
    Image(inspected()).refuse_traces(tmp_path, pip)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    with pytest.raises(CheckFailed, match=file):
        Image(inspected()).refuse_traces(tmp_path, pip)


def test_an_address_of_packages_in_the_image_is_refused(tmp_path: Path) -> None:
    pip = LentPip(values={"index-url": "https://user:secret@one.example/simple"})
    Image(inspected()).refuse_traces(tmp_path, pip)
    with pytest.raises(CheckFailed, match="where packages came from"):
        Image(inspected(Env=["PIP_INDEX_URL=https://user:secret@one.example/simple"])).refuse_traces(
            tmp_path, pip
        )
