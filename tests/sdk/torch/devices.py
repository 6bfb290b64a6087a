"""The device on which the facts train: the accelerator that torch has, or the CPU."""

import torch

_ACCELERATOR = torch.accelerator.current_accelerator(check_available=True)
DEVICE: torch.device = _ACCELERATOR or torch.device("cpu")
IS_CPU = _ACCELERATOR is None
