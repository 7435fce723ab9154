"""Stock Attune on servers of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.stock_world import StockWorld, stock_world


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[StockWorld]:
    async with stock_world(vhost, database, tmp_path) as one:
        yield one
