"""The timeout monitor: executions that leave no dead letter."""
