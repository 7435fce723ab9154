"""How an execution ends and how its completion event is published."""
