"""What the parent tells a rank, and the names of keys and files on which they agree."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PORT_FILE = "port"
"""In the folder: the TCP port of the store, written once it listens."""
GO, NEWS, FAULT = "go", "news", "fault"
"""Keys of the store that the parent sets. The value of `NEWS` is the monotonic time."""
LIMIT_S = 120.0
"""The longest wait of a rank. The parent ends ranks earlier; this one serves if there is none."""


def key(step: str, rank: int) -> str:
    """Returns the key that a rank sets when it has come to a step."""
    return f"{step}/{rank}"


@dataclass(frozen=True, slots=True)
class Options:
    """What one rank plays."""

    program: str
    """A name in `e2e.gpu.nccl.rank.PROGRAMS`."""
    way: str
    """A name in `e2e.gpu.nccl.ways.WAYS`."""
    part: str
    """The ranks of a part have their own keys in the store."""
    rank: int
    ranks: int
    """Size of the first group. Its last rank is lost; rank number `ranks` joins later."""
    device: str
    """Of torch: "cuda" or "cpu"."""
    folder: str

    @classmethod
    def of_text(cls, text: str) -> Options:
        """Returns the options that `text` has made."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """Returns the options as JSON."""
        return json.dumps(asdict(self))

    def report(self) -> Path:
        """Returns the path of the rank's report."""
        return Path(self.folder) / f"{self.part}-{self.rank}.json"

    def log(self) -> Path:
        """Returns the path of what the rank and NCCL print."""
        return Path(self.folder) / f"{self.part}-{self.rank}.log"

    def port(self) -> Path:
        """Returns the path of the file with the store's port."""
        return Path(self.folder) / PORT_FILE
