"""What the master refuses, in the protocol's terms."""


class RefusedError(Exception):
    """A call that cannot be served and would not be the next time either.

    Attributes:
        status: HTTP's, 400 to 499.
        named: The field that is wrong, or None.
    """

    def __init__(self, status: int, message: str, named: str | None = None) -> None:
        """Says what is wrong and what to do about it, in one line."""
        super().__init__(message)
        self.status = status
        self.named = named


class JournalError(Exception):
    """The journal or the snapshot cannot be written or read; the text says which and why."""


class FencedError(Exception):
    """Another master serves this job now: this one must stop at once."""
