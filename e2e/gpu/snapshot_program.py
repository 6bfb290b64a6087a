"""Trains on the device under `edl agent`, with a snapshot in memory; the cell `agent` kills it after that."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import edl
import torch
from torch import nn

STEPS, SAVED = 20, 10


def main() -> None:
    """Saves a snapshot of step `SAVED` and waits to be killed; after a restart, continues from it."""
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    snapshots, step = edl.Snapshots(), 0
    newest = snapshots.newest()
    if newest is not None:
        state, step = newest.state(), newest.step
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"continues after step {step} with {digest(model, optimizer)}", flush=True)
    while step < STEPS:
        chance = torch.Generator().manual_seed(step)
        images = torch.randn(32, 64, generator=chance).to(device)
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == SAVED:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            before = digest(model, optimizer)
            is_kept = snapshots.save(step, state)
            print(f"saved step {step} ({is_kept}) with {before}", flush=True)
            time.sleep(600)
    print(f"ended after step {step}", flush=True)


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Returns a hash of all parameters and moments, and the devices on which they are."""
    tensors: list[Any] = list(model.parameters())
    for moments in optimizer.state.values():
        tensors += [moments["exp_avg"], moments["exp_avg_sq"], moments["step"]]
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().cpu().numpy().tobytes())
    devices = {parameter.device.type for parameter in model.parameters()}
    devices |= {moments["exp_avg"].device.type for moments in optimizer.state.values()}
    return f"{whole.hexdigest()[:16]} on {'+'.join(sorted(devices))}"


if __name__ == "__main__":
    main()
