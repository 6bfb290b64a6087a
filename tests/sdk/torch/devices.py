"""The device on which the facts train: the accelerator that torch has, or the CPU."""

import torch

IS_CPU = not torch.accelerator.is_available()
DEVICE: torch.device = (
    torch.device("cpu") if IS_CPU else torch.device(torch.accelerator.current_accelerator())
)
