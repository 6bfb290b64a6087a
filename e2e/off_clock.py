"""Runs a program whose wall clock is off: `python -m e2e.off_clock 3600 reconciler --listen ...`."""

import runpy
import sys
from datetime import datetime, timedelta

from runtime import clock


def main(offset_s: float, module: str) -> None:
    """Moves the clock before anybody else takes it, and runs the module with the other arguments."""
    right_now, right_epoch_s = clock.now, clock.epoch_s

    def now() -> datetime:
        return right_now() + timedelta(seconds=offset_s)

    clock.now = now
    clock.epoch_s = lambda: right_epoch_s() + offset_s
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _, offset, name, *arguments = sys.argv
    sys.argv = [name, *arguments]
    main(float(offset), name)
