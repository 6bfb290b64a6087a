"""Synchronous steps: scaling over processes, and overhead over plain PaddlePaddle.

The machine has two cores: with four processes each has half a core, so only the exchange matters
then. All figures are ratios within one run: the best of alternating turns; for plain PaddlePaddle
the median over pairs of neighbouring blocks.
"""

import json
import os
import secrets
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from edl.local import master, ports

from bench import wide
from bench.benchmark import Result, Setting
from bench.digits import BATCH, PADDLE, ROOT, flavours
from e2e.measure.criteria import Criterion
from tests.sdk.sync.fleets import Fleet

Json = dict[str, Any]
OVER_PLAIN = 0.95
"""The required limit: speed of a step with EDL over plain PaddlePaddle."""
WORLDS = (1, 2, 4)
_BATCH, _MICRO_BATCHES, _RECORDS = 256, 8, 4096
_ROUNDS_A_TURN, _ROUNDS_AN_EPOCH = 20, 8
_WARM_UP = 10
_COPIES = 8
"""Copies of the digits: an epoch has 360 steps, which is still short."""
_EPOCHS = 15
_END_S, _READY_S, _PLAIN_S = 120.0, 60.0, 300.0


def run(setting: Setting) -> Result:
    """Measures scaling with numpy, and the overhead with PaddlePaddle if it is installed."""
    turns = max(1, setting.rounds // _ROUNDS_A_TURN)
    epochs = max(2, setting.rounds // _ROUNDS_AN_EPOCH)
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as home:
        scaled = _scaling(Path(home), setting, turns, epochs)
        setting.report_progress("steps: with EDL and without")
        plain = _over_plain(Path(home), _EPOCHS if turns > 1 else 1) if PADDLE.exists() else None
    best = {
        world: max(figures["records_per_s"] for figures in runs) for world, runs in scaled.items()
    }
    shares = {
        world: min(figures["exchange_share"] for figures in runs) for world, runs in scaled.items()
    }
    criteria = (
        *(Criterion(f"sync_speed_{n}_over_1", best[n] / best[1], "") for n in WORLDS[1:]),
        *(Criterion(f"sync_exchange_share_{n}", shares[n], "") for n in WORLDS[1:]),
        Criterion("sync_step_speed_over_plain", _ratio(plain), "", OVER_PLAIN, at_least=True),
    )
    growth = {"records_per_s_alone": [best[1]] * len(setting.sizes)}
    scaling = {str(world): runs for world, runs in scaled.items()}
    return Result(criteria, growth, {"scaling": scaling, "plain": plain})


def _ratio(block_times: Json | None) -> float | None:
    if block_times is None:
        return None
    pairs = zip(block_times["plain"], block_times["elastic"], strict=True)
    return float(median(plain / elastic for plain, elastic in pairs))


def _scaling(home: Path, setting: Setting, turns: int, epochs: int) -> dict[int, list[Json]]:
    data = home / "wide.npz"
    wide.write(str(data), _RECORDS)
    options = {"model": str(ROOT / "bench/wide.py"), "data": str(data), "epochs": epochs}
    options |= {"batch_size": _BATCH, "micro_batches": _MICRO_BATCHES}
    runs: dict[int, list[Json]] = {world: [] for world in WORLDS}
    for turn in range(turns):
        for world in WORLDS:
            setting.report_progress(f"steps: {world} processes, turn {turn + 1} of {turns}")
            folder = home / f"{world}-{turn}"
            folder.mkdir()
            runs[world].append(_scaled(folder, options, world))
    return runs


def _scaled(folder: Path, options: Json, world: int) -> Json:
    go = folder / "go"
    with Fleet(folder, {**options, "go": str(go)}) as fleet:
        members = [fleet.add() for _ in range(world)]

        def ready() -> bool:
            for member in members:
                member.look()
            return all(member.ready for member in members)

        if not fleet.until(ready, _READY_S):
            raise RuntimeError(f"trainers do not start: {members[0].log.read_text()[-300:]}")
        go.touch()
        if not fleet.ended(members, _END_S):
            raise RuntimeError(f"trainers do not end: {members[0].log.read_text()[-300:]}")
    steps = [step for step in members[0].steps if step["world"] == world][_WARM_UP:]
    took_s = steps[-1]["at_s"] - steps[0]["at_s"]
    return {
        "records_per_s": sum(step["records"] for step in steps[1:]) / took_s,
        "step_ms": median(step["seconds"] for step in steps) * 1000,
        "exchange_ms": median(step["exchange_s"] for step in steps) * 1000,
        "exchange_share": sum(step["exchange_s"] for step in steps)
        / sum(step["seconds"] for step in steps),
        "steps": len(steps),
    }


def _over_plain(home: Path, epochs: int) -> Json:
    """Milliseconds per step of each block, with one trainer and one micro-batch."""
    paddle = next(flavour for flavour in flavours(home) if flavour.name == "paddle")
    token, port = secrets.token_hex(16), ports.free_ports(1)[0]
    own = {"EDL_TOKEN": token, "EDL_JOB": "bench", "OMP_NUM_THREADS": "1"}
    own |= {"EDL_MASTER": f"http://127.0.0.1:{port}", "EDL_TRAINER": "trainer-0"}
    environ = {**os.environ, **own}
    quiet = subprocess.DEVNULL
    serving = master.command(str(home / "journal"), port)
    served = subprocess.Popen(serving, env=environ, stdout=quiet, stderr=quiet)
    program = [paddle.python, str(ROOT / "bench/plain_member.py")]
    data = home / "digits.npz"
    with np.load(paddle.options["data"]) as arrays:
        many: Json = {name: np.concatenate([array] * _COPIES) for name, array in arrays.items()}
    np.savez(data, **many)
    program += [paddle.options["model"], str(data), str(BATCH), str(epochs)]
    try:
        done = subprocess.run(
            program,
            env=environ,
            capture_output=True,
            text=True,
            timeout=_PLAIN_S,
            check=False,
        )
    finally:
        served.terminate()
        served.wait(_END_S)
    if done.returncode:
        raise RuntimeError(f"the overhead of a step was not measured: {done.stderr[-500:]}")
    block_times: Json = json.loads(done.stdout.splitlines()[-1])
    return block_times
