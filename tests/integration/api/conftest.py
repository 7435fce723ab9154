"""A client of the API on an empty record, with a token of the role operate."""

from collections.abc import AsyncIterator

import httpx
import pytest

from dlq_handler.database.engine import Database
from tests.support.ui import OPERATE, TOKENS, a_ui_world, asking


@pytest.fixture
async def api(ui_store: Database) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(await a_ui_world(ui_store, tokens=TOKENS), token=OPERATE) as client:
        client.base_url = "http://localhost:8085/api/v1/"
        yield client
