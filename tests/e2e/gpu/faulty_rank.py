"""A rank, as `e2e.gpu.nccl.rank`, with ways that go wrong on purpose."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from e2e.gpu.nccl import rank
from e2e.gpu.nccl.ways import WAYS, Gloo


class Hanging(Gloo):
    """Never forms a group."""

    def form(self, number: int, ranks: Sequence[int]) -> None:
        """Hangs, as NCCL does where a rank does not answer."""
        what = f"group {number} of {len(ranks)} ranks waits"
        sys.stdout.write(f"host:1:2 [0] init.cc:3 NCCL WARN {what}\n")
        sys.stdout.flush()
        time.sleep(1000)


class Wrong(Gloo):
    """Sums, but one element is wrong."""

    def begin(self, tensor: Any) -> Any:
        """Begins the sum of other values."""
        tensor[len(tensor) // 2] += 1
        return super().begin(tensor)


class Dying(Gloo):
    """Ends the process in a sum."""

    def begin(self, tensor: Any) -> Any:
        """Ends at once."""
        os._exit(7)
        return tensor


if __name__ == "__main__":
    WAYS.update(hanging=Hanging, wrong=Wrong, dying=Dying)
    rank.main(sys.argv[1])
