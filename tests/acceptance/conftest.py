"""Stock Attune on servers of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.journey import World, stock_world


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with stock_world(vhost, database, tmp_path) as one:
        yield one
