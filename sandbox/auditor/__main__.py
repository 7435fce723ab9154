"""Run the auditor: reports on standard output, one JSON object a line; on standard input, commands.

`audit` asks for an audit; `lost PART` comes before each kill, and `back PART` when the part works again; `retired
WORKER` names a worker whose queues are to be deleted. Where the
servers are it reads from Attune's own variables. Standard input is also its leash: it ends with it.
"""

import asyncio
import logging
import os
import sys
import threading

from sandbox.attune.database import Database
from sandbox.auditor.reports import Reporter
from sandbox.auditor.watch import Watch
from sandbox.times import SCALED


async def watch_until_let_go(amqp_url: str, database_url: str, schema: str) -> None:
    database = await Database.open(database_url, schema)
    watch = Watch(amqp_url, database, Reporter(sys.stdout), repeat_margin_seconds=SCALED.lease_seconds)
    watching = asyncio.create_task(watch.run(), name="watch")
    loop = asyncio.get_running_loop()

    def obey() -> None:
        for line in sys.stdin:
            match line.split():
                case ["audit"]:
                    loop.call_soon_threadsafe(watch.ask)
                case ["lost", part]:
                    loop.call_soon_threadsafe(watch.lose, part)
                case ["back", part]:
                    loop.call_soon_threadsafe(watch.regain, part)
                case ["retired", worker]:
                    loop.call_soon_threadsafe(watch.retire, worker)
                case _:
                    print(
                        f"unknown command {line!r}: use audit, lost PART, back PART or retired WORKER",
                        file=sys.stderr,
                        flush=True,
                    )
        loop.call_soon_threadsafe(watching.cancel)

    # A thread, for standard input may be a file or a terminal, which no event loop can watch; it ends with us.
    threading.Thread(target=obey, daemon=True).start()
    await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()


def main() -> None:
    # Its client complains of every attempt to connect; that the broker is away is reported once, and that is enough.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    asyncio.run(
        watch_until_let_go(
            os.environ["ATTUNE__MESSAGE_QUEUE__URL"],
            os.environ["ATTUNE__DATABASE__URL"],
            os.environ.get("ATTUNE__DATABASE__SCHEMA", "attune"),
        )
    )


if __name__ == "__main__":
    main()
