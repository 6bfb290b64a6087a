"""The same classifier as a plain script of torchrun: it knows nothing of EDL.

    torchrun --nproc-per-node 2 examples/torch_digits/train_torchrun.py --out build/torchrun-digits

As the trainers of an elastic job, on this machine or on a cluster, it runs unchanged:

    edl agent --nproc 2 -- python examples/torch_digits/train_torchrun.py --out /models/digits

Each process takes its share of each batch. Every few steps the process of rank 0 writes a checkpoint, from
which all continue when they start again, however many they are then.
"""

from __future__ import annotations

import argparse
import os
import runpy
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST, BATCH, RATE = 360, 64, 2e-3
IMAGES = Path(__file__).parents[1] / "numpy_digits/train.py"


def train(out: Path, steps: int, save_every: int, pause_s: float) -> None:
    """Trains until that many steps are made, in all processes together."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    images, labels = map(torch.as_tensor, runpy.run_path(str(IMAGES))["digits"]())
    labels = labels.long()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    path, step = out / "checkpoint.pt", 0
    if path.exists():
        state = torch.load(path, map_location=device, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = int(state["step"])
    dist.barrier()
    while step < steps:
        chance = torch.Generator().manual_seed(step)
        batch = torch.randint(len(images) - TEST, (BATCH,), generator=chance)[rank::world_size]
        outputs = model(images[batch].to(device))
        loss = nn.functional.cross_entropy(outputs, labels[batch].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and (step % save_every == 0 or step == steps):
            state = {
                "model": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            out.mkdir(parents=True, exist_ok=True)
            torch.save(state, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
        if rank == 0 and step % 10 == 0:
            print(
                f"step {step} of {steps}: loss {float(loss.detach()):.5f}, {world_size} processes"
            )
        time.sleep(pause_s)
    if rank == 0:
        with torch.no_grad():
            answers = network(images[-TEST:].to(device)).argmax(1).cpu()
        right = (answers == labels[-TEST:]).float().mean()
        print(f"test accuracy {float(right):.3f}")
    dist.destroy_process_group()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Handwritten digits, a script of torchrun.")
    parser.add_argument("--out", type=Path, default=Path("build/torchrun-digits"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--pause-s", type=float, default=0.0, help="after each step")
    args = parser.parse_args()
    train(args.out, args.steps, args.save_every, args.pause_s)


if __name__ == "__main__":
    main()
