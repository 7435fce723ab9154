"""The API keeps to its own description: whatever that allows is answered as it says, and nothing else is."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.decision import Outcome
from tests.support.builders import a_dead_letter
from tests.support.eventually import eventually
from tests.support.sidecar import sidecar_process
from tests.support.ui import OPERATE, put_on_record

EXAMPLES = 8
# The stream never ends, so it is asked for elsewhere.
STREAM = "/api/v1/events"
TOKEN = {"Authorization": f"Bearer {OPERATE}"}


Operation = APIOperation[Any, Any, Any, Any]


def all_operations(url: str) -> Iterator[Operation]:
    description = httpx.get(f"{url}/api/v1/openapi.json", headers=TOKEN, trust_env=False).json()
    for methods in description["paths"].values():
        for operation in methods.values():
            # Every question comes with its token: what becomes of one without is the guard's, and asked there.
            assert operation.pop("security")
    for found in schemathesis.openapi.from_dict(description).exclude(path=STREAM).get_all_operations():
        assert isinstance(found, Ok), found
        yield found.ok()


def ask(operation: Operation, mode: GenerationMode, url: str) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers_as_described(case: Any) -> None:
        # A window that ends before it begins is one that no description can rule out: it is refused all the same.
        case.call_and_validate(base_url=url, headers=TOKEN, excluded_checks=[positive_data_acceptance])

    # Where nothing can be said, nothing can be said wrongly.
    with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
        answers_as_described()


@pytest.mark.timeout(300)
async def test_the_api_answers_as_its_description_says(vhost: str, database: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(OPERATE)
    tokens = json.dumps([{"name": "ada", "role": "operate", "token_file": str(tmp_path / "token")}])
    async with sidecar_process(
        tmp_path, vhost, database, ui__tokens=tokens, ui__refresh_seconds="1"
    ) as sidecar:
        store = Database(database)
        await put_on_record(store, a_dead_letter(key="a"), a_dead_letter(key="b", execution_id=2))
        await put_on_record(store, a_dead_letter(key="c"), outcome=Outcome.UNKNOWN_EXECUTION)
        await store.dispose()
        await eventually(lambda: has_looked(sidecar.ui_url))
        operations = await asyncio.to_thread(lambda: list(all_operations(sidecar.ui_url)))
        assert {one.label for one in operations} >= {"GET /api/v1/letters", "POST /api/v1/brake/release"}
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                await asyncio.to_thread(ask, operation, mode, sidecar.ui_url)
        assert sidecar.events("request.failed") == []


async def has_looked(url: str) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/api/v1/workers", headers=TOKEN)
    return answer.status_code == 200
