"""What the webhook was last told of each kind: shared by all replicas, so that a new leader does not repeat it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.domain.notification import Told
from dlq_handler.domain.observation import Health
from dlq_handler.domain.text import storable
from dlq_handler.store.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifiedLook:
    now: datetime
    told: dict[str, Told]


async def look(tx: Transaction) -> NotifiedLook:
    rows = await tx.rows(
        """
        SELECT clock_timestamp() AS now, n.*
          FROM (SELECT 1) AS one LEFT JOIN own.notified n ON true
         ORDER BY n.at DESC, n.kind
        """
    )
    told = [
        Told(kind=row.kind, health=Health(row.health), sentence=row.sentence, at=row.at, about=row.about)
        for row in rows
        if row.kind is not None
    ]
    return NotifiedLook(now=rows[0].now, told={one.kind: one for one in told})


async def record(tx: Transaction, told: Iterable[Told]) -> None:
    """Whatever was noted before: who compares times here tells the same for ever once a clock was set back."""
    for one in sorted(told, key=lambda one: one.kind):
        await tx.run(
            """
            INSERT INTO own.notified (kind, health, sentence, at, about)
            VALUES (:kind, :health, :sentence, :at, :about)
            ON CONFLICT (kind) DO UPDATE
               SET health = excluded.health, sentence = excluded.sentence, at = excluded.at, about = excluded.about
            """,
            kind=one.kind,
            health=one.health.value,
            sentence=storable(one.sentence),
            at=one.at,
            about=one.about,
        )
