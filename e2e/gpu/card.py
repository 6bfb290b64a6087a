"""Probes the card in a separate process, and finds missing packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FREE_GB = 16.0
"""Free device memory that the largest cell needs: `step` holds 100 M parameters with optimizer state twice."""
MODULES = ("numpy", "aiohttp", "orjson", "prometheus_client", "pydantic")
"""Modules that master and SDK need in addition to the standard library and torch."""
_LOOK_S = 180.0

_LOOK = """
import json
found = {}
try:
    import torch
except ImportError as error:
    found["problem"] = f"torch cannot be imported ({error}): call make gpu PYTHON=... with a Python that has torch"
else:
    found["torch"], found["cuda"] = torch.__version__, torch.version.cuda
    if torch.version.cuda is None:
        found["problem"] = f"torch {torch.__version__} was built without CUDA: call make gpu PYTHON=... with another Python"
    elif not torch.cuda.is_available():
        found["problem"] = f"torch {torch.__version__} sees no GPU: check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES"
    else:
        try:
            free, total = torch.cuda.mem_get_info()
            torch.zeros(1, device="cuda").item()
            found["free_gb"], found["total_gb"] = free / 1e9, total / 1e9
            found["card"] = torch.cuda.get_device_name()
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        except RuntimeError as error:
            found["problem"] = "the card cannot be used: " + str(error).splitlines()[0]
print(json.dumps(found))
"""
_MISSING = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
"""


class CardError(Exception):
    """This machine's card cannot be used; the message is one line with the way out."""


@dataclass(frozen=True)
class Card:
    """A usable card, and the software on the machine."""

    name: str
    driver: str
    torch: str
    cuda: str
    nccl: str
    free_gb: float
    total_gb: float


def has_card() -> bool:
    """Returns whether this machine has an NVIDIA device, even if torch does not find it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def find_card(environ: Mapping[str, str]) -> Card | None:
    """Returns the card; None if this machine has none.

    Args:
        environ: Of the processes of cells.

    Raises:
        CardError: There is one that the cells cannot use.
    """
    command = [sys.executable, "-c", _LOOK]
    try:
        looked = subprocess.run(  # a sick driver may hang or crash the process
            command, env=environ, capture_output=True, text=True, timeout=_LOOK_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise CardError(f"the card did not answer within {_LOOK_S:.0f} s: see nvidia-smi") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "no output").strip().splitlines()[-1]
        raise CardError(f"a process that looked at the card crashed: {last:.200}") from None
    found = json.loads(looked.stdout.splitlines()[-1])
    if "problem" in found and not has_card():
        return None
    return checked(found, driver())


def checked(found: Mapping[str, object], driver_version: str) -> Card:
    """Returns the card that was found.

    Args:
        found: What the process has printed.
        driver_version: Of the card.

    Raises:
        CardError: The cells cannot use it.
    """
    if "problem" in found:
        raise CardError(str(found["problem"]))
    free_gb, total_gb = float(str(found["free_gb"])), float(str(found["total_gb"]))
    if free_gb < FREE_GB:
        raise CardError(
            f"{found['card']} has {free_gb:.1f} of {total_gb:.1f} GB free, and the cells need {FREE_GB:.0f}: "
            + (
                "end the programs that use it (nvidia-smi lists them)"
                if total_gb > FREE_GB
                else "use a larger card"
            )
        )
    torch, cuda, nccl = (str(found[name]) for name in ("torch", "cuda", "nccl"))
    return Card(str(found["card"]), driver_version, torch, cuda, nccl, free_gb, total_gb)


def missing_modules(environ: Mapping[str, str]) -> list[str]:
    """Returns the `MODULES` that cells cannot import in this environment."""
    command = [sys.executable, "-c", _MISSING, *MODULES]
    looked = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return looked.stdout.split()


def has_standin(environ: Mapping[str, str]) -> bool:
    """Returns whether torch has the stand-in in this environment."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1, device='standin')"]
    return not subprocess.run(command, env=environ, capture_output=True, check=False).returncode


def driver() -> str:
    """Returns the version of NVIDIA's driver; "" if nothing says it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip().splitlines()[0] if said.stdout.strip() else ""


def environment(root: Path, site: Path) -> dict[str, str]:
    """Returns the environment of the processes of cells.

    Args:
        root: Of the repository.
        site: Folder of packages that this Python lacks.
    """
    path = [str(root / "sdk/src"), str(root), os.environ.get("PYTHONPATH", ""), str(site)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONFAULTHANDLER": "1",  # a process that is ended by SIGABRT writes its stacks
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }
