"""The history of our own tables. `migrate.py` runs it; Alembic's own command needs no place here."""
