"""What can go wrong on the way to a server's programs."""


class SourceUnavailable(Exception):
    """One way to a server is not open here. The next is tried; the reason is kept for the final error."""


class SourceFailed(SourceUnavailable):
    """A way that looked open and failed. Also taken for closed; but the user, who expects it, reads why it was left."""


class ProgramFailed(SourceUnavailable):
    """A program that we needed the answer of ended with an error."""
