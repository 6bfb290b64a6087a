"""`edl agent --members` with the classifier in JAX on one device: a member is lost, and one joins."""

from __future__ import annotations

import re
import subprocess
import sys

from e2e.gpu.agent import kill_process
from e2e.gpu.cell import LeftOutError, Run
from e2e.gpu.job import LIMIT_S, ROOT, Job, Trainer

PROGRAM = ROOT / "examples/jax_digits/train_jax.py"
EPOCHS, TRAINED = 8, 1437
_BACKENDS = {"cuda": "gpu", "standin": "cpu"}
"""Names of torch's devices in JAX, where they differ."""
_ACCURACY = re.compile(r"test accuracy (\d\.\d+) after \d+ steps")

_HELD = """
import pathlib, runpy, sys, time
import edl.jax
_, hold, *sys.argv = sys.argv
plain = edl.jax.JaxRounds.sum
def held(*args):
    while pathlib.Path(hold).exists():
        time.sleep(0.01)
    return plain(*args)
edl.jax.JaxRounds.sum = held
runpy.run_path(sys.argv[0], run_name="__main__")
import jax
print(f"ran on {jax.default_backend()}", flush=True)
"""
"""Runs a program whose steps a file holds."""


def play(run: Run) -> None:
    """Kills a member and adds one."""
    command = (sys.executable, "-c", "import jax")
    if subprocess.run(command, check=False, capture_output=True, timeout=LIMIT_S).returncode:
        raise LeftOutError("jax is not installed in this Python")
    with Job(run.folder / "job") as job:
        job.hold.touch()
        pods = [_start_agent(job, f"pod-{number}") for number in range(2)]
        for pod in pods:
            pod.says("joined job")
        job.hold.unlink()
        _change_members(run, job, pods)


def _change_members(run: Run, job: Job, pods: list[Trainer]) -> None:
    """Loses one of two members, which is started again, and gains a third one."""
    lost, other = pods
    for pod in pods:
        pod.says(r"round \d+: \d of 2, step")
    killed_s = kill_process(lost, PROGRAM)
    run.record(kill_s=other.says(r"round \d+: \d of 1, step", killed_s) - killed_s)
    job.hold.touch()
    lost.says("joined job", killed_s)
    job.hold.unlink()
    run.record(restart_s=lost.says(r"round \d+: \d of 2, step", killed_s) - killed_s)
    job.hold.touch()
    pods.append(_start_agent(job, "pod-2"))
    pods[-1].says("joined job")
    job.hold.unlink()
    pods[-1].says(r"round \d+: \d of 3, step")
    _check_end(run, job, pods)


def _check_end(run: Run, job: Job, pods: list[Trainer]) -> None:
    for pod in pods:
        pod.ends()
    done = job.done_records("digits")
    run.check(done == EPOCHS * TRAINED, f"{done} records instead of {EPOCHS * TRAINED} are done")
    accuracies = {accuracy for pod in pods for accuracy in _ACCURACY.findall(pod.text)}
    run.check(len(accuracies) == 1, f"the members' accuracies are {sorted(accuracies)}")
    backend = _BACKENDS.get(run.device, run.device)
    ran = all(f"ran on {backend}" in pod.text for pod in pods)
    run.check(ran, f"not all ran on {backend}\n{pods[0].end}")
    accuracy = float(accuracies.pop())
    run.record(accuracy=accuracy)
    run.check(accuracy > 0.9, f"the accuracy is {accuracy}")


def _start_agent(job: Job, name: str) -> Trainer:
    words = (sys.executable, "-c", _HELD, job.hold, PROGRAM, "--epochs", str(EPOCHS))
    return job.start(
        name,
        *("-m", "edl", "agent", "--members", "--", *words),
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
    )
