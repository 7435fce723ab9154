"""dlq-handler: ends executions whose worker is gone, beside an unmodified Attune."""

__version__ = "0.1.0"
