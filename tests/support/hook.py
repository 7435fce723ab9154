"""A receiver of webhooks: a real HTTP server that keeps what it hears and answers what it is told to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(kw_only=True)
class Hook:
    url: str = ""
    answer: int = 200
    silent: threading.Event = field(default_factory=threading.Event)
    """While set, nobody is answered."""
    heard: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def kinds(self) -> list[list[tuple[str, str]]]:
        """Of each message: what changed, and to what."""
        return [[(one["kind"], one["health"]) for one in message["changes"]] for message in self.heard]


@contextmanager
def a_hook() -> Iterator[Hook]:
    hook, over = Hook(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if hook.silent.is_set():
                over.wait()
                return
            hook.heard.append(body)
            hook.headers.append(dict(self.headers))
            self.send_response(hook.answer)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_port}/hooks/S3CRET"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hook
    finally:
        over.set()
        server.shutdown()
        server.server_close()
