"""The trainer of the cell "step": steps a model by `edl.torch.Training` and by plain DDP in turn.

Its argument is JSON with the `device`, the `sizes` of `e2e.gpu.step_cost`, and the file of its `result`.
"""

import copy
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import edl.torch
import torch
import torch.distributed as dist
from edl.overriding import override
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from e2e.gpu.step_cost import STAGES, Sizes

_RATE = 3e-4
_ROWS = 4096
"""Different rows of the data, which is repeated."""
_FIRST = 2
"""Steps until a model has all its memory: DDP makes its final buckets in the second one."""
_SYNC = "called a synchronizing CUDA operation"


class Rows(Dataset[Any]):  # type: ignore[misc]  # torch has no types here
    """Rows of random tokens, low ones more frequent, which a model learns at once."""

    def __init__(self, sizes: Sizes, count: int) -> None:
        """Draws the same tokens each time."""
        self._count = count
        numbers = torch.Generator().manual_seed(1)
        uniform = torch.rand(_ROWS, sizes.context + 1, generator=numbers)
        self._tokens = (uniform**4 * sizes.vocabulary).long()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        return self._tokens[index % _ROWS]


class Block(nn.Module):  # type: ignore[misc]  # as above
    """A layer of the transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 4 * width
        self.perceptron = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns the next layer's input, of the same shape."""
        heads = self.inputs(self.attention_norm(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.output(mixed.transpose(1, 2).flatten(2))
        return hidden + self.perceptron(self.perceptron_norm(hidden))


class Transformer(nn.Module):  # type: ignore[misc]  # as above
    """A decoder with learned positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(0.02 * torch.randn(sizes.context, sizes.width))
        self.blocks = nn.Sequential(
            *(Block(sizes.width, sizes.heads) for _ in range(sizes.layers)),
            nn.LayerNorm(sizes.width),
        )
        self.last = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns logits of the token after each."""
        return self.last(self.blocks(self.embedding(tokens) + self.positions))


class Side(Protocol):
    """One of the two ways to make a step."""

    loss: Any

    def step(self) -> None:
        """Makes a whole step, from reading its batch to the optimizer's step."""
        ...


class Plain(Side):
    """Plain DistributedDataParallel of one process."""

    def __init__(self, model: Any, device: str, rows: Iterator[Tensor]) -> None:
        """Wraps the model."""
        self.loss: Any = None
        self._model, self._device, self._rows = DistributedDataParallel(model), device, rows
        self._optimizer = optimizer_of(model, device)

    @override
    def step(self) -> None:
        self._optimizer.zero_grad()
        loss = loss_of(self._model, next(self._rows), self._device)
        loss.backward()
        self._optimizer.step()
        self.loss = loss.detach()


class Elastic(Side):
    """A loop over the steps of a `Training`."""

    def __init__(self, model: Any, device: str, steps: Iterator[Any]) -> None:
        """Forms the group, and waits for the first step."""
        self.loss: Any = None
        self._model, self._device, self._steps = model, device, steps
        self._step = next(steps)

    @override
    def step(self) -> None:
        # `Training` applies a step, and plans the next one, when the next one is requested
        self._compute()
        self._step = next(self._steps)

    def finish(self) -> None:
        """Makes the last step; the job is done then."""
        self._compute()
        for _ in self._steps:
            raise RuntimeError("there are more records than steps")

    def _compute(self) -> None:
        for rows in self._step:
            loss = loss_of(self._model, rows, self._device)
            self._step.backward(loss)
            self.loss = loss.detach()


def main(text: str) -> None:
    """Measures both sides, and writes the result."""
    options = json.loads(text)
    device, sizes = options["device"], Sizes(**options["sizes"])
    torch.manual_seed(1)
    model = Transformer(sizes)
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    steps = _FIRST + sizes.warm + sizes.pairs + sizes.counted + 1
    data = Rows(sizes, steps * sizes.batch_size)
    pins = {"pin_memory": device == "cuda"}
    held_bytes = [allocated_bytes(device)]

    rows = iter(DataLoader(data, batch_size=sizes.batch_size, **pins))
    plain = Plain(copy.deepcopy(model).to(device), device, rows)
    repeat(plain, _FIRST)
    print(STAGES[0])
    held_bytes.append(allocated_bytes(device))

    elastic_model = copy.deepcopy(model).to(device)
    with edl.torch.Training(
        elastic_model,
        optimizer_of(elastic_model, device),
        records=len(data),
        batch_size=sizes.batch_size,
        micro_batches=1,
    ) as training:
        loader = DataLoader(data, batch_sampler=training.sampler, **pins)
        elastic = Elastic(elastic_model, device, training.steps(loader))
        repeat(elastic, _FIRST)
        print(STAGES[1])
        held_bytes.append(allocated_bytes(device))

        alternate(plain, elastic, sizes.warm, device)
        raw: dict[str, Any] = {
            "pairs": alternate(plain, elastic, sizes.pairs, device),
            "syncs": {},
            "counted": sizes.counted,
            "parameters": sum(p.numel() for p in model.parameters()),
            "held_bytes": {},
        }
        print(STAGES[2])
        if device == "cuda":
            raw["syncs"] = {
                "plain": synchronizations(plain, sizes.counted),
                "edl": synchronizations(elastic, sizes.counted),
            }
            plain_bytes, edl_bytes = (after - before for before, after in pairwise(held_bytes))
            raw["held_bytes"] = {"plain": plain_bytes, "edl": edl_bytes}
        else:
            repeat(plain, sizes.counted)
            repeat(elastic, sizes.counted)
        raw |= {"loss_plain": float(plain.loss), "loss_edl": float(elastic.loss)}
        elastic.finish()
    dist.destroy_process_group()
    Path(options["result"]).write_text(json.dumps(raw), encoding="utf-8")


def optimizer_of(model: Any, device: str) -> Any:
    """Returns AdamW for a model, fused on CUDA."""
    return torch.optim.AdamW(model.parameters(), _RATE, fused=device == "cuda" or None)


def loss_of(model: Any, rows: Tensor, device: str) -> Tensor:
    """Returns the mean loss of a batch, computed in bf16."""
    tokens = rows.to(device, non_blocking=True)
    with torch.autocast(device, torch.bfloat16):
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def repeat(side: Side, count: int) -> None:
    """Makes steps."""
    for _ in range(count):
        side.step()


def alternate(plain: Side, elastic: Side, pairs: int, device: str) -> list[list[float]]:
    """Steps both sides in turn; returns the seconds of each pair, the plain step's first.

    The order changes with each pair, so that neither side profits from its place.
    """
    sides, seconds = (plain, elastic), []
    for number in range(pairs):
        pair = [0.0, 0.0]
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            synchronize(device)
            began_s = time.perf_counter()
            sides[index].step()
            synchronize(device)
            pair[index] = time.perf_counter() - began_s
        seconds.append(pair)
    return seconds


def synchronize(device: str) -> None:
    """Waits for all that was queued on the device."""
    if device != "cpu":
        torch.accelerator.synchronize()


def allocated_bytes(device: str) -> int:
    """Returns the bytes of all tensors on a CUDA device; 0 on another."""
    return int(torch.cuda.memory_allocated()) if device == "cuda" else 0


def synchronizations(side: Side, count: int) -> Counter[str]:
    """Makes steps; returns how often each place of the program made the host wait for the device.

    torch notes waits of its own operations, such as the copy of `float(loss)`. It does not note those of
    `torch.distributed`, nor explicit ones such as `torch.cuda.synchronize`.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            repeat(side, count)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if _SYNC in str(warning.message)]
    return Counter("/".join(Path(w.filename).parts[-2:]) + f":{w.lineno}" for w in waits)


if __name__ == "__main__":
    main(sys.argv[1])
