"""The cells, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.nearest import advice


@dataclass(frozen=True)
class Cell:
    """One check or measurement on a card."""

    name: str
    about: str
    """Its purpose, in a few words."""
    function: str
    """Takes a `Run`; as `module:name`."""
    limit_s: float
    needs_cuda: bool = False
    """Whether it needs an NVIDIA GPU; the others also run on the CPU and the stand-in."""


CELLS = (
    Cell("facts", "the facts of tests/sdk/torch, with models on the card", "e2e.gpu.facts:play", 100),
    Cell("digits", "three trainers on one card: kill, freeze, join, SIGTERM", "e2e.gpu.digits:play", 75),
    Cell("transformer", "a transformer, beside one trainer", "e2e.gpu.transformer:play", 75),
    Cell("step", "a step beside plain DDP, 100 M parameters", "e2e.gpu.step_cost:play", 75, needs_cuda=True),
    Cell("agent", "a script of torchrun, and snapshots in memory", "e2e.gpu.agent:play", 90),
    Cell("nccl-raw", "several ranks of NCCL on one card", "e2e.gpu.nccl.raw:play", 60, needs_cuda=True),
    Cell("nccl-legacy", "the same with torch's ProcessGroupNCCL", "e2e.gpu.nccl.legacy:play", 50, needs_cuda=True),
    Cell("nccl-overlap", "two communicators at once", "e2e.gpu.nccl.overlap:play", 30, needs_cuda=True),
    Cell("jax", "JAX: a member is lost, another joins", "e2e.gpu.jax_members:play", 170),
)  # fmt: skip


class UnknownCellError(Exception):
    """No cell has this name; the message says which do."""


def choose(names: Sequence[str]) -> tuple[Cell, ...]:
    """Returns the cells of these names in the order of `CELLS`; all of them if none is named.

    Raises:
        UnknownCellError: There is no such cell.
    """
    known = [cell.name for cell in CELLS]
    wanted = [name.strip() for name in names if name.strip()]
    for name in wanted:
        if name not in known:
            hint = advice(name, known)
            raise UnknownCellError(f"no cell is called {name}{hint}; cells: {', '.join(known)}")
    return tuple(cell for cell in CELLS if cell.name in wanted or not wanted)
