"""Runs with real processes in which trainers and masters are killed at random moments."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.sdk.commands.test_run import LAST, PROGRAM

RECORDS, EPOCHS = 300, 2
_RUN_S = 120
FEW, DOZENS = 3, 36


def _schedule(chance: Random) -> str:
    """Six kills and changes, some of them at almost the same time."""
    acts = ["kill", "kill", "kill master", "kill master", "+1", "-1"]
    places = sorted(chance.randint(2, 90) for _ in acts)
    chance.shuffle(acts)
    return ", ".join(f"{place}%:{act}" for place, act in zip(places, acts, strict=True))


def _run(folder: Path, seed: int) -> None:
    schedule = _schedule(Random(seed))  # noqa: S311 - the same kills in every run
    program = folder / "train.py"
    program.write_text(PROGRAM.format(records=RECORDS, step="time.sleep(0.02)"))
    options = ["-n", "4", "--schedule", schedule]
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", "run", *options, str(program), str(folder / "trained")],
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
        cwd=folder,
        env={**os.environ},
    )
    assert done.returncode == 0, (schedule, done.stderr)
    last = LAST.search(done.stdout)
    assert last is not None, (schedule, done.stdout)
    word, acknowledged, records, _, dropped, _ = last.groups()
    whole = str(RECORDS * EPOCHS)
    assert (word, acknowledged, records, dropped) == ("done", whole, whole, None), schedule
    trained = Counter(int(line) for line in (folder / "trained").read_text().splitlines())
    assert set(trained) == set(range(RECORDS)), schedule
    assert min(trained.values()) >= EPOCHS, schedule


@pytest.mark.soak
@pytest.mark.timeout(DOZENS * _RUN_S)
def test_every_record_is_acknowledged_whoever_is_killed(tmp_path: Path, *, thorough: bool) -> None:
    """Exactly once an epoch; a few runs here, dozens in `make properties`."""
    for seed in range(DOZENS if thorough else FEW):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _run(folder, seed)
