"""A classifier of handwritten digits in PyTorch; trainers come and go while it trains.

    pip install torch numpy edl-sdk
    edl run -n 4 --schedule "30%:kill, 60%:+1" examples/torch_digits/train_torch.py --out build/torch-digits

The loop is that of any program in PyTorch. All trainers make each step together, on gradients of the
same batch however many there are, so the loss curve does not depend on who comes and goes. After
all trainers were lost, the next ones continue from the newest checkpoint.

With `--local-steps 50` they make so many steps apart between two exchanges (DiLoCo), for slow networks.
"""

from __future__ import annotations

import argparse
import os
import runpy
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # trainers share the machine's cores

import edl.torch
import torch
from edl.sync import SyncStep
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TEST = 360
BATCH, LOCAL_BATCH = 32, 8
RATE = 2e-3
IMAGES = Path(__file__).parents[1] / "numpy_digits/train.py"


def digits() -> tuple[Any, Any]:
    """Returns images of 64 pixels and their digits, in the same order in all trainers."""
    images, labels = runpy.run_path(str(IMAGES))["digits"]()
    return torch.as_tensor(images), torch.as_tensor(labels, dtype=torch.int64)


def report(step: SyncStep, every: int) -> None:
    """Shows the progress, now and then."""
    if step.step % every == 0 or step.step == 1:
        loss, members = step.metrics["loss"], step.world_size
        print(f"step {step.step}: loss {loss:.5f}, {members} trainers, round {step.round}")


def train(out: Path, epochs: int, workers: int, save_every: int, local_steps: int) -> None:
    """Trains until the job is done."""
    images, labels = digits()
    data = TensorDataset(images[:-TEST], labels[:-TEST])
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    with edl.torch.Training(
        model,
        optimizer,
        records=len(data),
        batch_size=LOCAL_BATCH if local_steps else BATCH,
        micro_batches=None if local_steps else 4,
        local_steps=local_steps,
        epochs=epochs,
        shuffle_seed=1,
        checkpoints=out,
        checkpoint_steps=save_every,
        on_step=partial(report, every=1 if local_steps else 20),
    ) as training:
        loader = DataLoader(
            data,
            batch_sampler=training.sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        for step in training.steps(loader):
            for x, y in step:
                outputs = model(x.to(device))
                step.backward(nn.functional.cross_entropy(outputs, y.to(device)))
        result = training.result
    if result.late:
        print("the others had trained all data before this trainer came")
        return
    model.eval()
    with torch.no_grad():
        answers = model(images[-TEST:].to(device)).argmax(1).cpu()
    right = (answers == labels[-TEST:]).float().mean()
    print(
        f"test accuracy {float(right):.3f} after {result.steps} steps, {result.redone} done again"
    )
    print(f"exchanged {training.exchanged_bytes / 1e6:.3f} MB")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Handwritten digits, elastic, in PyTorch.")
    parser.add_argument("--out", type=Path, default=Path("build/torch-digits"))
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--workers", type=int, default=0, help="processes that read data")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument(
        "--local-steps", type=int, default=0, help="steps of each trainer between two exchanges"
    )
    args = parser.parse_args()
    train(args.out, args.epochs, args.workers, args.save_every, args.local_steps)


if __name__ == "__main__":
    main()
