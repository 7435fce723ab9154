"""The reference services, started on a vhost and a database of the test's own."""

from collections.abc import AsyncIterator

import pytest

from dlq_handler.sandbox.attune.auditor import Auditor
from dlq_handler.sandbox.attune.completion_listener import CompletionListener
from dlq_handler.sandbox.attune.executor import StockExecutor
from dlq_handler.sandbox.attune.worker import StockWorker


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
