"""Trainers as processes that are frozen at random moments, and thawed when others have gone on or ended."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from tests.sdk.sync.fleets import Fleet, Member

Json = dict[str, Any]
JOBS, FREEZES_OF_A_JOB = 25, 4
RECORDS, BATCH, EPOCHS = 512, 32, 6
STEPS = RECORDS // BATCH * EPOCHS
OPTIONS: Json = {
    "batch_size": BATCH,
    "micro_batches": 4,
    "shuffle_seed": 1,
    "records": RECORDS,
    "rate": 0.01,
    "epochs": EPOCHS,
    "checkpoint_steps": 5,
    "pause_s": 0.04,
}
_HANG_S = 100.0
_MOST_FROZEN_S = 4.0


class Job:
    """One job of up to three trainers, one of which is frozen again and again."""

    def __init__(self, folder: Path, chance: Random) -> None:
        folder.mkdir()
        self._kept, self._chance = folder / "kept", chance
        self._fleet = Fleet(folder, {**OPTIONS, "checkpoints": str(self._kept)})
        self._victims: list[tuple[Member, str]] = []

    def run(self) -> Counter[str]:
        """To its end; which moments there were, and what became of who was frozen."""
        with self._fleet:
            for _ in range(self._chance.choice([1, 2, 3])):
                self._fleet.add()
            for number in range(FREEZES_OF_A_JOB):
                self._freeze(number)
            return self._checked()

    def _freeze(self, number: int) -> None:
        """At a random step; also a little later than a step, in whatever it does then."""
        fleet, chance = self._fleet, self._chance
        share = chance.uniform(number, number + 1) / FREEZES_OF_A_JOB
        at = max(1, round(share * STEPS))
        assert fleet.until(lambda: self._step() >= at or not fleet.active(), _HANG_S), fleet.folder
        Event().wait(chance.uniform(0.0, 0.05))
        there = fleet.ranked() or fleet.active()
        if not there:
            self._victims.append((fleet.members[0], "nobody: the job had ended"))
            return
        place = chance.randrange(len(there))
        victim, others = there[place], [one for one in fleet.members if one is not there[place]]
        victim.send(signal.SIGSTOP)
        what = "rank 0" if place == 0 else "rank above 0"
        if not any(one.lives for one in others):
            what = "alone"
            others.append(fleet.add())  # takes over
        if number == FREEZES_OF_A_JOB - 1 or chance.random() < 1 / FREEZES_OF_A_JOB:
            assert fleet.ended(others, _HANG_S), fleet.folder
        else:
            Event().wait(chance.uniform(0.0, _MOST_FROZEN_S))
        over = not any(one.lives for one in others)
        victim.send(signal.SIGCONT)
        self._victims.append((victim, f"{what}, {'others had ended' if over else 'others train'}"))

    def _step(self) -> int:
        for one in self._fleet.members:
            one.look()
        return max(
            (int(one.steps[-1]["step"]) for one in self._fleet.members if one.steps), default=0
        )

    def _checked(self) -> Counter[str]:
        """All have ended, and nobody took an old model for the job's."""
        fleet = self._fleet
        assert fleet.ended(fleet.members, _HANG_S), fleet.folder
        status, ends = fleet.status(), [_end(one) for one in fleet.members]
        assert status["state"] == "done"
        assert status["datasets"]["points"]["done_records"] == RECORDS * EPOCHS
        assert {one.process.returncode for one in fleet.members} == {0}, fleet.folder
        assert all(one["end"] for one in ends), ends
        trained = [one for one in ends if not one["late"]]
        assert len({(one["steps"], one["records"], one["digest"]) for one in trained}) == 1, ends
        lost = int(status["setbacks"]["records"])
        assert trained[0]["records"] >= RECORDS * EPOCHS - lost, (fleet.folder, lost, ends)
        kept = max(self._kept.glob("checkpoint-*"))
        step = json.loads((kept / "manifest.json").read_bytes())["step"]
        assert step == trained[0]["steps"], (kept, step, ends)
        found: Counter[str] = Counter()
        for victim, what in self._victims:
            late = _end(victim)["late"]
            assert not late or "the data was trained" in victim.log.read_text(encoding="utf-8")
            found[f"{what}: {'late' if late else 'whole, with the newest model'}"] += 1
        return found


def _end(member: Member) -> Json:
    assert member.end is not None, member.log
    return member.end


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(JOBS))
def test_whoever_was_frozen_never_takes_an_old_model_for_the_newest(
    tmp_path: Path, number: int
) -> None:
    """At random steps and ranks; nobody is whole with an old model, or saves it as the newest."""
    seed = int(os.environ.get("EDL_STORM_SEED") or Random().randrange(1 << 30))  # noqa: S311 - told
    print(f"\nEDL_STORM_SEED={seed} [{number}]")  # noqa: T201 - for whoever repeats it
    found = Job(tmp_path / "job", Random(seed + number)).run()  # noqa: S311 - no secret
    for what, count in sorted(found.items()):
        print(f"{count:4} {what}")  # noqa: T201 - which moments there were
    assert sum(found.values()) == FREEZES_OF_A_JOB
