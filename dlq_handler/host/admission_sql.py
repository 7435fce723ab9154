"""Whether the host has the admission tables, and lets us read them. Where it does not, nobody waits in a line."""

from dlq_handler.database.transaction import Transaction


async def has_admission(tx: Transaction) -> bool:
    # has_table_privilege of a table that is not there is NULL, not an error.
    row = await tx.row(
        "SELECT coalesce(has_table_privilege(to_regclass('execution_admission_entry'), 'SELECT'), false) AS may_read"
    )
    return row is not None and bool(row.may_read)
