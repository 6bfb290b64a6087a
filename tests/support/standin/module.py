"""A device of torch for tests: see standin.cpp. torch loads it by itself where its folder is on the path."""

import contextlib
import types
from pathlib import Path
from typing import Any

import torch

NAME = "standin"


def load() -> None:
    """Registers the device; called by torch when it is imported."""
    torch.ops.load_library(str(Path(__file__).with_name("standin.so")))
    torch.ops.standin.begin()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())  # noqa: SLF001 - how a device of its own is added


def _module() -> Any:
    """Returns what stands at `torch.standin`."""
    module = types.ModuleType(f"torch.{NAME}")
    state = torch.ops.standin.get_rng_state
    functions = {
        "_is_in_bad_fork": lambda: False,
        "current_device": lambda: 0,
        "current_stream": torch.accelerator.current_stream,
        "device_count": lambda: 1,
        "get_rng_state": lambda _device=0: state(),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "manual_seed_all": torch.ops.standin.manual_seed,
        "set_rng_state": lambda rng, _device=0: torch.ops.standin.set_rng_state(rng),
        "stream": contextlib.nullcontext,
        "synchronize": lambda _device=0: torch.ops.standin.synchronize(),
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module
