"""Events, minute counts and retention."""
