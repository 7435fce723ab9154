"""Long-running loops, each glue around one pure decision; each has `run(stop)` and, where it polls, `tick()`."""
