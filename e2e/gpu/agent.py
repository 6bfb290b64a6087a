"""`edl agent` on one device: a script of torchrun in several pods, and a snapshot of a state on the device."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

from e2e.gpu.cell import CellError, Run
from e2e.gpu.job import ROOT, Job, Trainer, await_line, descendants

SCRIPT = ROOT / "examples/torch_digits/train_torchrun.py"
SNAPSHOTS = ROOT / "e2e/gpu/snapshot_program.py"
STEPS, PAUSE_S = 100, 0.1
"""The pause after each step leaves time for the third pod."""
_STATES = re.compile(r"(?:saved step 10 \(True\)|continues after step 10) with (\w+) on (\S+)")


def play(run: Run) -> None:
    """Kills a process of a pod, adds a pod, and kills a process that has saved a snapshot."""
    with Job(run.folder / "torchrun") as job, Job(run.folder / "snapshots") as other:
        keeper = start_agent(other, "keeper", SNAPSHOTS)
        _change_pods(run, job)
        keeper.says("saved step")
        killed_s = kill_process(keeper, SNAPSHOTS)
        run.record(snapshot_restart_s=keeper.says("continues after", killed_s) - killed_s)
        keeper.ends()
    states = _STATES.findall(keeper.text)
    run.check(len(states) == 2, f"{len(states)} of 2 states\n{keeper.end}")
    run.check(states[0] == states[1], f"the state was {states[0]} and is {states[1]}")
    run.check(states[1][1] == run.device, f"the state is on {states[1][1]}")


def start_agent(job: Job, name: str, *words: str | Path, **environ: str) -> Trainer:
    """Starts an agent with one process: Python with these words."""
    return job.start(name, "-m", "edl", "agent", "--", sys.executable, *words, **environ)


def kill_process(agent: Trainer, program: Path) -> float:
    """Sends SIGKILL to the process that runs a program for an agent; returns when.

    Raises:
        CellError: The agent does not have one such process.
    """
    pids = descendants(agent.process.pid)
    found = [pid for pid in pids if str(program) in Path(f"/proc/{pid}/cmdline").read_text()]
    if len(found) != 1:
        raise CellError(f"{agent.name} has {len(found)} processes of {program.name}\n{agent.end}")
    os.kill(found[0], signal.SIGKILL)
    return time.monotonic()


def _start_pod(job: Job, name: str) -> Trainer:
    # gloo, which the script uses, has no operations for devices that are not built into torch
    environ = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    words = ("--steps", str(STEPS), "--pause-s", str(PAUSE_S), "--save-every", "10")
    return start_agent(job, name, SCRIPT, *words, "--out", str(job.folder / "out"), **environ)


def _change_pods(run: Run, job: Job) -> None:
    """Loses a process and gains a pod; all pods exit with 0."""
    begun_s = time.monotonic()
    pods = [_start_pod(job, f"pod-{number}") for number in range(2)]
    run.record(start_s=await_line(pods, "step .* 2 processes") - begun_s)
    killed_s = kill_process(pods[0], SCRIPT)
    run.record(kill_s=await_line(pods, "step .* 2 processes", killed_s) - killed_s)
    begun_s = time.monotonic()
    pods.append(_start_pod(job, "pod-2"))
    run.record(join_s=await_line(pods, "step .* 3 processes", begun_s) - begun_s)
    for pod in pods:
        pod.ends()
    text = "".join(pod.text for pod in pods)
    run.check(f"step {STEPS} of {STEPS}:" in text, f"step {STEPS} is missing\n{pods[0].end}")
    run.check(job.state() == "done", f"the job is {job.state()}")
    run.check((job.folder / "out/checkpoint.pt").exists(), "there is no checkpoint")
