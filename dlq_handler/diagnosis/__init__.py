"""What is wrong, since when, and what to do: one view, checks for each component."""
