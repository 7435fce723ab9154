"""Make any string storable. PostgreSQL takes neither NUL nor a lone surrogate, and a letter may carry both."""


def storable(text: str) -> str:
    """The same text with NUL and lone surrogates written out as visible escapes."""
    if "\x00" in text:
        text = text.replace("\x00", "\\u0000")
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text
