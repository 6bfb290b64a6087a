"""A small transformer that predicts the next byte of a text, in PyTorch; trainers come and go.

    pip install torch numpy edl-sdk
    edl run -n 4 --schedule "30%:kill, 60%:+1" examples/torch_transformer/train_transformer.py docs/*.md

The text is any files that all trainers have. The model is whole in each trainer, and gradients are
summed while backward runs; with `--local-steps 20` trainers exchange what they have changed instead.

    edl agent --replica --nproc 2 -- python examples/torch_transformer/train_transformer.py docs/*.md

runs it as a pod of two processes, which hold the model together (FSDP2), on the CPU.
"""

from __future__ import annotations

import argparse
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # trainers share the machine's cores

import edl.torch
import torch
import torch.distributed as dist
from edl.sync import SyncStep
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2
BYTES = 256
BATCH, LOCAL_BATCH, RATE, WARMUP = 32, 8, 3e-3, 20
HELD_OUT = 64
"""Windows at the end of the text on which the trained model is measured."""


class Windows(Dataset[Any]):  # type: ignore[misc]  # torch has no types here
    """Parts of a text that do not overlap, each with the byte that follows each of its bytes."""

    def __init__(self, text: bytes) -> None:
        """Keeps the text, of at least `HELD_OUT` windows and one."""
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def __len__(self) -> int:
        """Returns how many windows there are."""
        return (len(self._bytes) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Returns a window, and what follows."""
        start = index * CONTEXT
        part = self._bytes[start : start + CONTEXT + 1]
        return part[:-1], part[1:]


class Transformer(nn.Module):  # type: ignore[misc]  # as above
    """A decoder of bytes with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.last = nn.Linear(WIDTH, BYTES)

    def forward(self, windows: Tensor) -> Tensor:
        """Returns logits of the next byte, for each byte of each window."""
        size = windows.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(size, device=windows.device)
        hidden = self.embedding(windows) + self.positions[:size]
        return self.last(self.layers(hidden, mask=mask, is_causal=True))


def loss_of(model: nn.Module, windows: Tensor, following: Tensor) -> Tensor:
    """Returns the mean cross-entropy of a batch, in nats for each byte."""
    return nn.functional.cross_entropy(model(windows).flatten(0, 1), following.flatten())


def rate_factor(step: int, steps: int) -> float:
    """Returns the share of the learning rate in a step: warm-up, then a cosine."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, step / max(1, steps))))


def report(step: SyncStep) -> None:
    """Shows the progress, now and then."""
    if step.step % 10 == 0 or step.step == 1:
        print(f"step {step.step}: loss {step.metrics['loss']:.4f}, {step.world_size} trainers")


def shard(model: Transformer) -> None:
    """Shards the model over the processes that `edl agent --replica` has started."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def train(args: argparse.Namespace) -> None:
    """Trains until the job is done, and measures the model."""
    data = Windows(b"\n".join(path.read_bytes() for path in args.text))
    count = len(data) - HELD_OUT
    if count < BATCH:
        raise SystemExit(f"the text has {max(0, len(data))} windows of {CONTEXT} bytes: give more")
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = torch.device("cpu") if "RANK" in os.environ or accelerator is None else accelerator
    torch.manual_seed(0)
    model = Transformer().to(device)
    if "RANK" in os.environ:
        shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    steps = args.epochs * -(-count // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate_factor, steps=steps))
    with edl.torch.Training(
        model,
        optimizer,
        records=count,
        batch_size=LOCAL_BATCH if args.local_steps else BATCH,
        micro_batches=None if args.local_steps else 4,
        local_steps=args.local_steps,
        epochs=args.epochs,
        shuffle_seed=1,
        scheduler=schedule,
        before_step=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        checkpoints=args.out,
        checkpoint_steps=100,
        on_step=report,
    ) as training:
        for step in training.steps(DataLoader(data, batch_sampler=training.sampler)):
            for windows, following in step:
                step.backward(loss_of(model, windows.to(device), following.to(device)))
        result = training.result
    if result.late:
        print("the others had trained all data before this trainer came")
        return
    model.eval()
    pairs = zip(*(data[count + index] for index in range(HELD_OUT)), strict=True)
    windows, following = (torch.stack(part).to(device) for part in pairs)
    with torch.no_grad():
        loss = float(loss_of(model, windows, following))
    if os.environ.get("RANK", "0") == "0":  # of a pod, one process
        print(f"held-out loss {loss:.3f} after {result.steps} steps, {result.redone} done again")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="A transformer of bytes, elastic, in PyTorch.")
    parser.add_argument(
        "text", type=Path, nargs="+", help="files of text, the same in all trainers"
    )
    parser.add_argument("--out", type=Path, default=Path("build/torch-transformer"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--local-steps", type=int, default=0, help="steps of each trainer between two exchanges"
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()
