"""The database of dlq-handler: engine, transactions, errors, the leader's lease, migrations."""
