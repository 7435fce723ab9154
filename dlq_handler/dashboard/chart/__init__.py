"""The chart of dead letters over time: geometry, labels, table. Pure."""
