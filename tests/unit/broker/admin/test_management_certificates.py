"""Certificates for the management API are read once, and not on the event loop."""

import ssl
import threading

import pytest

from dlq_handler.broker.admin import management_api
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.errors import Unavailable
from sandbox.servers.ports import free_port


async def test_certificates_are_read_once_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    read, readers = ssl.create_default_context, list[threading.Thread]()

    def noted_read() -> ssl.SSLContext:
        readers.append(threading.current_thread())
        return read()

    monkeypatch.setattr(ssl, "create_default_context", noted_read)
    management_api._certificates.cache_clear()
    port = free_port()
    for _ in range(2):
        api = ManagementApi(f"https://127.0.0.1:{port}", vhost="/", timeout_seconds=5)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await api.clock()
    assert len(readers) == 1
    assert readers[0] is not threading.main_thread()
