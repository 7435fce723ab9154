"""The history of dlq-handler's own tables. `migrate.py` runs it; Alembic's own command needs no place here."""
