"""All SQL, and our own tables. Rows never leave this folder; the domain's dataclasses do.

What is part of a larger transaction takes the open `Transaction`; what is one of its own takes the
`Database`.
"""
