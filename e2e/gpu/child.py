"""The process of one cell: `python -m e2e.gpu.child MODULE:FUNCTION DEVICE FOLDER`; writes FOLDER/result.json."""

from __future__ import annotations

import ctypes
import importlib
import json
import resource
import signal
import sys
import traceback
from pathlib import Path

from e2e.gpu.cell import CellError, LeftOutError, Play, Run

RESULT = "result.json"
_PR_SET_PDEATHSIG = 1


def main(place: str, device: str, folder: str) -> int:
    """Plays the cell; returns 0 if all its checks hold.

    Args:
        place: Of its function, such as "e2e.gpu.digits:play".
        device: As in `Run`.
        folder: As in `Run`.
    """
    problem, is_left_out = "", False
    end_with_parent()
    try:
        module, _, function = place.partition(":")
        play: Play = getattr(importlib.import_module(module), function)
        play(Run(device, Path(folder)))
    except CellError as error:
        problem = str(error)
    except LeftOutError as error:
        problem, is_left_out = str(error), True
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the cell's result
        traceback.print_exc()
        problem = f"{type(error).__name__}: {error}"
    result = {"problem": problem, "left_out": is_left_out}
    Path(folder, RESULT).write_text(json.dumps(result), encoding="utf-8")
    return int(bool(problem))


def end_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, and write no core file."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
