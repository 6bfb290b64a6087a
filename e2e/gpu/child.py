"""The process of one cell: `python -m e2e.gpu.child MODULE:FUNCTION DEVICE FOLDER`; writes FOLDER/result.json."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

from e2e.gpu.cell import CellError, Play, Run

RESULT = "result.json"


def main(place: str, device: str, folder: str) -> int:
    """Plays the cell; returns 0 if all its checks hold.

    Args:
        place: Of its function, such as "e2e.gpu.digits:play".
        device: As in `Run`.
        folder: As in `Run`.
    """
    problem = ""
    try:
        module, _, function = place.partition(":")
        play: Play = getattr(importlib.import_module(module), function)
        play(Run(device, Path(folder)))
    except CellError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the cell's result
        traceback.print_exc()
        problem = f"{type(error).__name__}: {error}"
    Path(folder, RESULT).write_text(json.dumps({"problem": problem}), encoding="utf-8")
    return int(bool(problem))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
