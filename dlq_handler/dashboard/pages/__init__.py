"""One module for each page: what it asks, and what it shows."""
