"""Dead letters: parse, decide, record, search, reprocess."""
