"""The cell "facts": the tests of tests/sdk/torch, except pods, with models on the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from e2e.gpu.cell import Run
from e2e.gpu.job import ROOT

FILES = ("groups", "steps", "training", "checkpoints", "local", "models")
_POLL_S = 0.1
_NOT_SO = re.compile(r"^not so: (\w+)", re.MULTILINE)


def play(run: Run) -> None:
    """Checks all files of facts at the same time, each in a separate process."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = {}
    for name in FILES:
        with (run.folder / f"{name}.log").open("w", encoding="utf-8") as log:
            command = [sys.executable, "-W", "ignore", "-m", f"tests.sdk.torch.torch_{name}"]
            begun[name] = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
            )
    broken = []
    while begun:  # a hang ends with the cell, which keeps the stacks
        for name in [name for name, process in begun.items() if process.poll() is not None]:
            code = begun.pop(name).returncode
            text = (run.folder / f"{name}.log").read_text(encoding="utf-8")
            wrong = _NOT_SO.findall(text) or ([] if code == 0 else [f"exited with code {code}"])
            run.record(**{f"{name}_ok": not wrong})
            broken += [f"{name}: {fact}" for fact in wrong]
            if wrong:
                print(text)
        time.sleep(_POLL_S)
    run.check(not broken, "; ".join(broken))
