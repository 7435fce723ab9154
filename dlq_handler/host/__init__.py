"""All that dlq-handler knows of the host: its executions, workers, messages, and every statement on its tables."""
