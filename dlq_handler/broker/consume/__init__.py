"""Take dead letters from a queue in batches and acknowledge them."""
