"""What operators do, with the expected version and an audit record."""
