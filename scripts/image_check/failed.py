"""What the check is there to say."""


class CheckFailed(Exception):
    """The image is not what it should be. Says what is and what was wanted."""
