"""dlq-handler: ends executions whose worker is unavailable, beside an unmodified Attune."""

__version__ = "0.1.0"
