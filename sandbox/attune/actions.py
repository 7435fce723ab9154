"""The actions that the sandbox has, what their rows say, and what a worker really runs for them.

`core.*` name no runtime: any worker takes them, and runs them in its own. `shell.echo`, `python.echo` and `node.echo`
need theirs. A script gets its parameters as one JSON object on standard input, and says how it went by its exit code.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.attune.database import Session

RUNTIMES = ("shell", "python", "node")
SLOW_LIMIT = 2

_ECHO = {
    "shell": "cat",
    "python": "import sys; sys.stdout.write(sys.stdin.read())",
    "node": "process.stdin.pipe(process.stdout)",
}
# `exec`: what is ended with the action is the sleeping itself, not a shell around it.
_SLEEP = {
    "shell": """
        seconds=$(sed -n 's/.*"seconds": *\\([0-9.]*\\).*/\\1/p')
        echo "slept ${seconds:-1} s"
        exec sleep "${seconds:-1}"
    """,
    "python": """
import json, sys, time
seconds = json.load(sys.stdin).get("seconds", 1)
time.sleep(seconds)
print(f"slept {seconds} s")
""",
    "node": """
        const seconds = JSON.parse(require("fs").readFileSync(0)).seconds ?? 1;
        setTimeout(() => console.log(`slept ${seconds} s`), seconds * 1000);
    """,
}
_FAIL = {
    "shell": "echo 'this action always fails' >&2; exit 3",
    "python": "import sys; print('this action always fails', file=sys.stderr); sys.exit(3)",
    "node": "console.error('this action always fails'); process.exit(3)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    ref: str
    scripts: Mapping[str, str]
    """By runtime."""
    runtime: str | None = None
    """The one it needs; None: any."""
    concurrency_limit: int | None = None


ACTIONS = {
    action.ref: action
    for action in (
        Action(ref="core.echo", scripts=_ECHO),
        Action(ref="core.sleep", scripts=_SLEEP),
        Action(ref="core.slow", scripts=_SLEEP, concurrency_limit=SLOW_LIMIT),
        Action(ref="core.fail", scripts=_FAIL),
        *(Action(ref=f"{runtime}.echo", scripts=_ECHO, runtime=runtime) for runtime in RUNTIMES),
    )
}


async def install_actions(session: Session) -> None:
    """All of them. Installing twice changes nothing."""
    for action in ACTIONS.values():
        await ensure_action(
            session, action.ref, runtime=action.runtime, concurrency_limit=action.concurrency_limit
        )


async def ensure_action(
    session: Session, ref: str, *, runtime: str | None = None, concurrency_limit: int | None = None
) -> int:
    """The id of the action, created with its pack and runtime if missing; a limit becomes a policy of its own."""
    pack_ref, _, name = ref.partition(".")
    await session.execute(
        "INSERT INTO pack (ref, label, version) VALUES ($1, $1, '1.0.0') ON CONFLICT DO NOTHING", pack_ref
    )
    if runtime is not None:
        await session.execute(
            "INSERT INTO runtime (ref, pack_ref, name) VALUES ('core.' || $1, 'core', $1) ON CONFLICT DO NOTHING",
            runtime,
        )
    await session.execute(
        """INSERT INTO action (ref, pack, pack_ref, label, entrypoint, runtime)
           SELECT $1, pack.id, pack.ref, $2, $2, (SELECT id FROM runtime WHERE ref = 'core.' || $4)
             FROM pack WHERE pack.ref = $3
           ON CONFLICT DO NOTHING""",
        ref,
        name,
        pack_ref,
        runtime,
    )
    action_id: int = await session.fetchval("SELECT id FROM action WHERE ref = $1", ref)
    if concurrency_limit is not None:
        await session.execute(
            """INSERT INTO policy (ref, action, action_ref, method, threshold, name)
               VALUES ($1, $2, $1, 'enqueue', $3, $1)
               ON CONFLICT (ref) DO UPDATE SET threshold = excluded.threshold""",
            ref,
            action_id,
            concurrency_limit,
        )
    return action_id
