"""The record of diagnoses: each change, so that a past moment can be shown again."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache

from pydantic import TypeAdapter

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.diagnosis.diagnosis import Diagnosis


async def record_change(tx: Transaction, diagnoses: Sequence[Diagnosis], *, at: datetime) -> None:
    """All of them, those without a problem too: which components are fine is half of the answer."""
    await tx.run(
        "INSERT INTO own.diagnosis_change (at, diagnoses) VALUES (:at, CAST(:diagnoses AS jsonb))",
        at=at,
        diagnoses=_encode(diagnoses),
    )


async def last(tx: Transaction) -> tuple[datetime, list[Diagnosis]] | None:
    """The last record and its time."""
    row = await tx.row(
        "SELECT at, CAST(diagnoses AS text) AS diagnoses FROM own.diagnosis_change ORDER BY at DESC, id DESC LIMIT 1"
    )
    return None if row is None else (row.at, _decode(row.diagnoses))


async def as_of(database: Database, at: datetime) -> tuple[datetime, list[Diagnosis]] | None:
    """The last ones before that moment, and when they were made; None: there is no record."""
    async with database.transaction() as tx:
        row = await tx.row(
            """
            SELECT at, CAST(diagnoses AS text) AS diagnoses FROM own.diagnosis_change
             WHERE at <= :at ORDER BY at DESC, id DESC LIMIT 1
            """,
            at=at,
        )
    return None if row is None else (row.at, _decode(row.diagnoses))


async def delete_old(database: Database, *, older_than_seconds: float) -> int:
    """All but the last one: it still holds, however old it is."""
    async with database.transaction() as tx:
        result = await tx.run(
            """
            DELETE FROM own.diagnosis_change
             WHERE at < now() - make_interval(secs => :age) AND id < (SELECT max(id) FROM own.diagnosis_change)
            """,
            age=float(older_than_seconds),
        )
    return result.rowcount


def _encode(diagnoses: Sequence[Diagnosis]) -> str:
    return as_jsonb({"diagnoses": _list().dump_python(list(diagnoses), mode="json")})


def _decode(text: str) -> list[Diagnosis]:
    return _list().validate_python(json.loads(text)["diagnoses"])


@cache
def _list() -> TypeAdapter[list[Diagnosis]]:
    return TypeAdapter(list[Diagnosis])
