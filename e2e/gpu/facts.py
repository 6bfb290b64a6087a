"""The cell "facts": the facts of tests/sdk/torch, with models on the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from e2e.gpu.cell import Run
from e2e.gpu.job import ROOT

FILES = ("groups", "steps", "training", "checkpoints", "local", "models")
_NOT_SO = re.compile(r"^not so: (\w+)", re.MULTILINE)
_LIMIT_S = 90.0


def play(run: Run) -> None:
    """Checks all files of facts at the same time, each in a process of its own."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    until_s = time.monotonic() + _LIMIT_S
    begun = {}
    for name in FILES:
        with (run.folder / f"{name}.log").open("w", encoding="utf-8") as log:
            command = [sys.executable, "-W", "ignore", "-m", f"tests.sdk.torch.torch_{name}"]
            begun[name] = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
            )
    broken = []
    for name, process in begun.items():
        code = process.wait(max(0.1, until_s - time.monotonic()))
        text = (run.folder / f"{name}.log").read_text(encoding="utf-8")
        wrong = _NOT_SO.findall(text) or ([] if code == 0 else [f"crashed with {code}"])
        run.record(**{f"{name}_ok": not wrong})
        broken += [f"{name}: {fact}" for fact in wrong]
        if wrong:
            print(text)
    run.check(not broken, "; ".join(broken))
