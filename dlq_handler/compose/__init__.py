"""Turn settings into parts."""
