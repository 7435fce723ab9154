"""The reference services, started on a vhost and a database of the test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.executor import StockExecutor
from sandbox.attune.worker import StockWorker
from tests.support.auditor import Auditor
from tests.support.stock_world import StockWorld, stock_world


@pytest.fixture
async def executor(vhost: str, database: str) -> AsyncIterator[StockExecutor]:
    async with StockExecutor(vhost, database) as service:
        yield service


@pytest.fixture
async def auditor(vhost: str, database: str) -> AsyncIterator[Auditor]:
    async with Auditor(vhost, database) as service:
        yield service


@pytest.fixture
async def worker(vhost: str, database: str) -> AsyncIterator[StockWorker]:
    """Registered, with its queues, and not consuming."""
    async with StockWorker(vhost, database, name="worker-shell") as service:
        yield service


@pytest.fixture
async def listener(vhost: str, database: str) -> AsyncIterator[CompletionListener]:
    async with CompletionListener(vhost, database) as service:
        yield service


@pytest.fixture
async def world(vhost: str, database: str, tmp_path: Path) -> AsyncIterator[StockWorld]:
    async with stock_world(vhost, database, tmp_path) as one:
        yield one
