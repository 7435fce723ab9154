"""Post one JSON message. Promises an end within its time; never shows the address, which is a secret as a whole."""

import asyncio
from collections.abc import Mapping

import httpx

from dlq_handler import __version__
from dlq_handler.errors import Unavailable
from dlq_handler.heartbeat import bounded


class WebhookFailed(Unavailable):
    """Nobody took the message, or nobody said so."""

    def __init__(self, what: str) -> None:
        super().__init__("webhook", what)


class Webhook:
    def __init__(self, url: str, *, authorization: str | None = None, timeout_seconds: float = 10.0) -> None:
        self._url, self._timeout_seconds = url, timeout_seconds
        self._headers = {"User-Agent": f"dlq-handler/{__version__}"}
        if authorization is not None:
            self._headers["Authorization"] = authorization

    async def post(self, message: Mapping[str, object]) -> None:
        """Raises `WebhookFailed` unless the answer is 2xx. A redirect is none: it would lose the method."""
        try:
            async with bounded(self._timeout_seconds):
                # In a thread: to read the certificates takes as long as many letters.
                certificates = await asyncio.to_thread(httpx.create_ssl_context)
                async with httpx.AsyncClient(verify=certificates, timeout=self._timeout_seconds) as client:
                    answer = await client.post(self._url, json=message, headers=self._headers)
        except TimeoutError as error:
            raise WebhookFailed(f"no answer within {self._timeout_seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # By its type alone: some of these quote the address.
            raise WebhookFailed(f"cannot be reached ({type(error).__name__})") from error
        if not answer.is_success:
            raise WebhookFailed(f"answered {answer.status_code}")
