"""Watch both servers, through every restart of either, and audit on request.

Promises: nothing that was committed or published is missed, however long a server was away; an audit is made of looks
that began after it was asked for. Never: writes to the database, publishes, or takes from a queue that is not its own.
"""

import asyncio
import time

from sandbox.attune import topology
from sandbox.attune.amqp import BROKER_AWAY
from sandbox.attune.database import DATABASE_AWAY, Database
from sandbox.auditor.completion_queue import STOCK_LETTERS, CompletionQueue
from sandbox.auditor.ledger import CompletionEvent, Ledger, Violation
from sandbox.auditor.outages import Outages
from sandbox.auditor.reports import Reporter
from sandbox.auditor.rows import read_changes, read_cordoned, read_line, read_terminal_rows, read_workers

LINE_OF = "core.slow"
LOOK_SECONDS = 0.2

# Attune's own dead-letter queue, the one that a sidecar makes for itself beside a stock executor, and the one that gets
# the messages for retired workers.
LETTER_QUEUES = (topology.DLX_QUEUE, "attune.dlx.sidecar.queue", "dlq_handler.retired.queue")


class Watch:
    def __init__(
        self, amqp_url: str, database: Database, reporter: Reporter, *, repeat_margin_seconds: float
    ) -> None:
        self._database, self._reporter = database, reporter
        self._losses = Outages(repeat_margin_seconds)
        self._ledger = Ledger(self._losses)
        self._arrived: list[tuple[CompletionEvent, bool]] = []
        self._completions = CompletionQueue(amqp_url, self._take_completion)
        self._away: set[str] = set()
        self._last_number = 0
        self._workers: dict[int, str] = {}
        self._undeleted: set[str] = set()
        """Queues of retired workers that never were seen missing."""
        self._line: list[tuple[int, str]] = []
        self._queues: dict[str, int] = {}
        self._stock_letters = 0
        self._told: set[Violation] = set()
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """For an audit, as soon as both servers answer."""
        self._asked.set()

    def lose(self, part: str) -> None:
        """The part is about to be killed: a repeated event may follow."""
        self._losses.lost(part, time.monotonic())

    def regain(self, part: str) -> None:
        """The part works again."""
        self._losses.back(part, time.monotonic())

    def retire(self, worker: str) -> None:
        """Its queues are to be deleted."""
        for number, name in self._workers.items():
            if name == worker:
                self._ledger.retired_workers.add(number)
                self._undeleted |= {queue.name for queue in topology.worker_queues(number)}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                is_asked = self._asked.is_set()
                if await self.look() and is_asked:
                    self._asked.clear()
                    self._reporter.audit(
                        self._ledger.audit(),
                        stock_letters=self._stock_letters,
                        messages_waiting=sum(self._queues.values()),
                        in_line=len(self._line),
                        undeleted=sorted(self._undeleted),
                    )
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._completions.close()

    async def look(self) -> bool:
        """True when both servers answered. The broker first: what is announced has been committed before."""
        broker_answered = await self._look_at_broker()
        database_answered = await self._look_at_database()
        return broker_answered and database_answered

    async def _look_at_broker(self) -> bool:
        try:
            if not self._completions.is_open:
                await self._completions.open()
            workers = [topology.worker_queue(number) for number in self._workers]
            depths = await self._completions.depths([STOCK_LETTERS, *LETTER_QUEUES, *workers])
            self._undeleted &= (await self._completions.depths(sorted(self._undeleted))).keys()
        except BROKER_AWAY as error:
            await self._completions.close()
            self._is_away("broker", error)
            return False
        self._stock_letters = depths.pop(STOCK_LETTERS)
        self._queues = depths
        self._is_back("broker")
        return True

    async def _look_at_database(self) -> bool:
        arrived, self._arrived = self._arrived, []
        completion_counts = self._ledger.completion_counts()
        session = self._database.session
        try:
            changes = await read_changes(session, self._last_number)
            terminal = await read_terminal_rows(session)
            workers = await read_workers(session)
            cordoned = await read_cordoned(session)
            self._line = await read_line(session, LINE_OF)
        except DATABASE_AWAY as error:
            self._is_away("database", error)
            if arrived:
                self._reporter.completions(arrived)
            return False
        self._is_back("database")
        if fresh := self._ledger.take_changes(changes):
            self._last_number = changes[-1].number
            self._reporter.changes(fresh)
        self._ledger.take_rows(terminal)
        if arrived:
            self._reporter.completions(arrived)
        self._workers = workers
        self._reporter.picture(line=self._line, workers=workers, cordoned=cordoned, queues=self._queues)
        for violation in self._ledger.violations(completion_counts):
            if violation not in self._told:
                self._told.add(violation)
                self._reporter.violation(violation)
        return True

    def _take_completion(self, completion: CompletionEvent, redelivered: bool) -> None:
        is_repeat = self._ledger.take_completion(completion, at=time.monotonic(), redelivered=redelivered)
        # What the broker hands to us again, after it was away, is no news.
        if not (is_repeat and redelivered):
            self._arrived.append((completion, is_repeat))

    def _is_away(self, server: str, error: BaseException) -> None:
        if server not in self._away:
            self._away.add(server)
            self._reporter.away(server, error)

    def _is_back(self, server: str) -> None:
        if server in self._away:
            self._away.remove(server)
            self._reporter.back(server)
