"""Alembic's entry. Runs on the connection, and in the transaction, that `migrate.py` hands it."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=context.config.attributes["own_schema"],
)
context.run_migrations()
