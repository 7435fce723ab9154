"""Every diagnosis leads to a section of the runbook: what it means, how to confirm it, what to do."""

import re
from pathlib import Path

import pytest

from dlq_handler.diagnosis.checks import INFOS, OF_EVERY_VIEW, Check
from dlq_handler.diagnosis.diagnosis import RUNBOOK, problem

ROOT = Path(__file__).resolve().parents[3]


def sections() -> dict[str, str]:
    """The runbook's sections by the anchor that a heading gets."""
    parts = re.split(r"^## (.+)$", (ROOT / RUNBOOK).read_text(), flags=re.MULTILINE)
    headings, texts = parts[1::2], parts[2::2]
    return {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-"): text
        for heading, text in zip(headings, texts, strict=True)
    }


@pytest.mark.parametrize("check", OF_EVERY_VIEW)
def test_the_section_of_a_check_says_what_it_means_and_what_to_do(check: Check) -> None:
    text = sections().get(INFOS[check].anchor or "")

    assert text is not None, f"{RUNBOOK} has no section #{INFOS[check].anchor}"
    assert "*You see*" in text
    assert "*It means*" in text
    assert "\n1. " in text or "\n- " in text, "what to do, step by step or by cause"


def test_a_diagnosis_names_the_section_of_its_check() -> None:
    assert problem(Check.CANARY, "lost", "repair it").runbook == f"{RUNBOOK}#canary-lost"
    assert problem(Check.SETTINGS, "wrong", "correct them").runbook is None
