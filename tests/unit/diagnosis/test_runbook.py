"""Every diagnosis leads to a page that is there: what it means, how to confirm it, what to do."""

import re
from pathlib import Path

import pytest

from dlq_handler.diagnosis.diagnosis import KINDS, RUNBOOK, Kind, page_of
from dlq_handler.diagnosis.doctor_lines import CANARY, SETTINGS

ROOT = Path(__file__).resolve().parents[3]


def sections() -> dict[str, str]:
    """The runbook's sections by the anchor that a heading gets."""
    parts = re.split(r"^## (.+)$", (ROOT / RUNBOOK).read_text(), flags=re.MULTILINE)
    headings, texts = parts[1::2], parts[2::2]
    return {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-"): text
        for heading, text in zip(headings, texts, strict=True)
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_page_of_a_diagnosis_says_what_it_means_and_what_to_do(kind: Kind) -> None:
    text = sections().get(kind.anchor)

    assert text is not None, f"{RUNBOOK} has no section #{kind.anchor}"
    assert "*You see*" in text
    assert "*It means*" in text
    assert "\n1. " in text or "\n- " in text, "what to do, step by step or by cause"


def test_the_doctor_leads_to_the_same_page() -> None:
    assert page_of(CANARY.problem("lost", "repair it")) == f"{RUNBOOK}#canary-lost"
    assert page_of(SETTINGS.ok("fine")) is None
