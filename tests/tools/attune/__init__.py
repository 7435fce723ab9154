"""The reference Attune held to the contract: where it differs from it, every other test proves nothing."""
