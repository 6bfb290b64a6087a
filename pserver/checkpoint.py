"""Names of checkpoints, and the description of a stored one. Pure."""

from typing import NamedTuple

from edl_protocol.pserver import Model

SHUTDOWN_VERSION = (1 << 53) - 1
"""The version under which a server writes its checkpoint at shutdown."""


class CheckpointName(NamedTuple):
    """The name of a checkpoint; a newer checkpoint has a greater name."""

    generation: int
    version: int
    """Server 0's version when the checkpoint was started."""
    of: int
    """Number of servers that wrote the checkpoint."""

    @property
    def folder(self) -> str:
        """Name of the folder with its files."""
        return f"{self.generation:06d}-{self.version:016d}"


class StoredCheckpoint(NamedTuple):
    """A checkpoint whose files that this server needs are complete."""

    name: CheckpointName
    records: int
    model: Model
