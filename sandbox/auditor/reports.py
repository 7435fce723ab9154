"""Reports of the auditor: one JSON object a line, with `kind` and the facts."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import IO

from sandbox.auditor.ledger import Audit, Change, CompletionEvent, Violation


class Reporter:
    """Writes the picture only when it differs from the last one."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._last_picture: dict[str, object] | None = None

    def changes(self, changes: Iterable[Change]) -> None:
        self._write("changes", changes=[asdict(change) for change in changes])

    def completions(self, completions: Iterable[tuple[CompletionEvent, bool]]) -> None:
        self._write(
            "completions",
            completions=[asdict(completion) | {"is_repeat": again} for completion, again in completions],
        )

    def picture(
        self,
        *,
        line: Iterable[tuple[int, str]],
        workers: Mapping[int, str],
        cordoned: Iterable[str],
        queues: Mapping[str, int],
    ) -> None:
        picture: dict[str, object] = {
            "line": [list(entry) for entry in line],
            "workers": [{"id": number, "name": name} for number, name in workers.items()],
            "cordoned": list(cordoned),
            "queues": dict(queues),
        }
        if picture != self._last_picture:
            self._last_picture = picture
            self._write("picture", **picture)

    def away(self, server: str, error: BaseException) -> None:
        self._write("away", server=server, error=str(error) or type(error).__name__)

    def back(self, server: str) -> None:
        self._write("back", server=server)

    def violation(self, violation: Violation) -> None:
        self._write("violation", **asdict(violation))

    def audit(self, audit: Audit, **counted: object) -> None:
        self._write("audit", **asdict(audit), **counted)

    def _write(self, kind: str, **facts: object) -> None:
        print(json.dumps({"kind": kind, **facts}), file=self._out, flush=True)
