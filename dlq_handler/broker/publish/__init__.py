"""Publish messages, and know the outcome of each."""
