"""A stand-in for a Docker engine: it answers the real client, and has no way to a registry."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

NO_REGISTRY = 'Get "https://registry.invalid/v2/":\n dial tcp: lookup registry.invalid: no such host'
NO_IMAGE = "No such image: whatever was asked for"
VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10", "Os": "linux", "Arch": "amd64"}


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith("/_ping"):
            self._answer(200, "OK")
        elif self.path.endswith("/version"):
            self._answer(200, VERSION)
        else:
            self._answer(404, {"message": NO_IMAGE})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/images/create" in self.path:
            self._answer(500, {"message": NO_REGISTRY})
        else:
            self._answer(404, {"message": NO_IMAGE})

    def _answer(self, status: int, body: object) -> None:
        sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_request(self, *_: object) -> None:
        """Quiet: what a test prints is for its failure."""


@contextmanager
def engine_without_images() -> Iterator[str]:
    """Its address, for DOCKER_HOST."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
