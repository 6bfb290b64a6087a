"""What checkpoints are called, and what a server knows of one that it has. Pure."""

from typing import NamedTuple

from pserver.model import Model

LAST = (1 << 53) - 1
"""The version of what a server writes when it is told to end."""


class Name(NamedTuple):
    """Of a checkpoint; newer ones are greater."""

    generation: int
    version: int
    """Of server 0, when it was begun."""
    of: int
    """Number of servers that wrote it."""

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"{self.generation:06d}-{self.version:016d}"


class Kept(NamedTuple):
    """A checkpoint that is whole, as far as this server needs it."""

    name: Name
    records: int
    model: Model
