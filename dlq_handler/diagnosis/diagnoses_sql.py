"""Diagnoses as they were: whoever opens a link of the night in the morning sees the night."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from dlq_handler.database.engine import Database
from dlq_handler.database.jsonb import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.observation import Component, Health


async def record_change(tx: Transaction, diagnoses: Sequence[Diagnosis], *, at: datetime) -> None:
    """All of them, the good ones too: "who is fine" is half of the answer."""
    await tx.run(
        "INSERT INTO own.diagnosis_change (at, diagnoses) VALUES (:at, CAST(:diagnoses AS jsonb))",
        at=at,
        diagnoses=as_jsonb({"diagnoses": [_written(one) for one in diagnoses]}),
    )


async def last(tx: Transaction) -> tuple[datetime, list[Diagnosis]] | None:
    """What was put on record last, and of when it is."""
    row = await tx.row(
        "SELECT at, CAST(diagnoses AS text) AS diagnoses FROM own.diagnosis_change ORDER BY at DESC, id DESC LIMIT 1"
    )
    return None if row is None else (row.at, _all(row.diagnoses))


async def as_of(database: Database, at: datetime) -> tuple[datetime, list[Diagnosis]] | None:
    """The last ones before that moment, and when they were made; None when nobody remembers."""
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT at, CAST(diagnoses AS text) AS diagnoses FROM own.diagnosis_change
             WHERE at <= :at ORDER BY at DESC, id DESC LIMIT 1
            """,
            at=at,
        )
    return None if row is None else (row.at, _all(row.diagnoses))


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    """All but the last one: in a quiet year it is still how things are."""
    async with database.transaction() as tx:
        result = await tx.run(
            """
            DELETE FROM own.diagnosis_change
             WHERE at < now() - make_interval(secs => :age) AND id < (SELECT max(id) FROM own.diagnosis_change)
            """,
            age=float(older_than_seconds),
        )
    return result.rowcount


def _written(diagnosis: Diagnosis) -> dict[str, object]:
    return asdict(diagnosis) | {"since": diagnosis.since.isoformat() if diagnosis.since else None}


def _all(text: str) -> list[Diagnosis]:
    return [_read(one) for one in json.loads(text)["diagnoses"]]


def _read(written: dict[str, Any]) -> Diagnosis:
    since = written["since"]
    return Diagnosis(
        **written
        | {
            "component": Component(written["component"]),
            "health": Health(written["health"]),
            "since": datetime.fromisoformat(since) if since else None,
            "evidence": tuple(written["evidence"]),
        }
    )
