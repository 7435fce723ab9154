"""What a browser is given: small, of our own, and nothing that the content security policy would refuse."""

import re
from pathlib import Path

import pytest

from dlq_handler.dashboard.shell import FOLDER, STATIC

TEMPLATES = sorted((FOLDER / "templates").rglob("*.html"))


def test_the_script_is_smaller_than_ten_kilobytes() -> None:
    assert (STATIC / "app.js").stat().st_size < 10_000


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_a_style_or_a_script_of_its_own_nor_trusts_anything(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\sstyle=|<style|\son\w+=|javascript:|\|\s*safe|autoescape", text)
    assert re.findall(r"<script(?! src=\"/static/)", text) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", text) == []


def test_the_style_sheet_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|@font-face", (STATIC / "app.css").read_text())
