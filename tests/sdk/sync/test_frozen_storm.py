"""Processes that are frozen at random moments, and thawed when others trained on or ended."""

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
from tests.support.storm_size import part_of

Json = dict[str, Any]
JOBS, FREEZES_OF_A_JOB = part_of(25), 4
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
_MAX_FROZEN_S = 4.0


class Job:
    """One job of up to three trainers, one of which is frozen again and again."""

    def __init__(self, folder: Path, chance: Random) -> None:
        folder.mkdir()
        self._checkpoints, self._chance = folder / "kept", chance
        self._fleet = Fleet(folder, {**OPTIONS, "checkpoints": str(self._checkpoints)})
        self._victims: list[tuple[Member, str]] = []

    def run(self) -> Counter[str]:
        """Runs it to its end; counts the moments of freezing and their outcomes."""
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
        ranked = fleet.ranked() or fleet.active()
        if not ranked:
            self._victims.append((fleet.members[0], "none: the job had ended"))
            return
        place = chance.randrange(len(ranked))
        victim, others = (
            ranked[place],
            [member for member in fleet.members if member is not ranked[place]],
        )
        victim.send(signal.SIGSTOP)
        moment = "rank 0" if place == 0 else "rank above 0"
        if not any(member.lives for member in others):
            moment = "alone"
            others.append(fleet.add())  # takes over
        if number == FREEZES_OF_A_JOB - 1 or chance.random() < 1 / FREEZES_OF_A_JOB:
            assert fleet.ended(others, _HANG_S), fleet.folder
        else:
            Event().wait(chance.uniform(0.0, _MAX_FROZEN_S))
        over = not any(member.lives for member in others)
        victim.send(signal.SIGCONT)
        self._victims.append(
            (victim, f"{moment}, {'others had ended' if over else 'others train'}")
        )

    def _step(self) -> int:
        for member in self._fleet.members:
            member.look()
        return max(
            (int(member.steps[-1]["step"]) for member in self._fleet.members if member.steps),
            default=0,
        )

    def _checked(self) -> Counter[str]:
        """Checks that all have ended, and none took an old model for the job's."""
        fleet = self._fleet
        assert fleet.ended(fleet.members, _HANG_S), fleet.folder
        status, ends = fleet.status(), [_end(member) for member in fleet.members]
        assert status["state"] == "done"
        assert status["datasets"]["points"]["done_records"] == RECORDS * EPOCHS
        assert {member.process.returncode for member in fleet.members} == {0}, fleet.folder
        assert all(end["end"] for end in ends), ends
        trained = [end for end in ends if not end["late"]]
        assert len({(end["steps"], end["records"], end["digest"]) for end in trained}) == 1, ends
        lost = int(status["setbacks"]["records"])
        assert trained[0]["records"] >= RECORDS * EPOCHS - lost, (fleet.folder, lost, ends)
        newest = max(self._checkpoints.glob("checkpoint-*"))
        step = json.loads((newest / "manifest.json").read_bytes())["step"]
        assert step == trained[0]["steps"], (newest, step, ends)
        outcomes: Counter[str] = Counter()
        for victim, moment in self._victims:
            late = _end(victim)["late"]
            assert not late or "the data was trained" in victim.log.read_text(encoding="utf-8")
            outcomes[f"{moment}: {'late' if late else 'whole, with the newest model'}"] += 1
        return outcomes


def _end(member: Member) -> Json:
    assert member.end is not None, member.log
    return member.end


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(JOBS))
def test_whoever_was_frozen_never_takes_an_old_model_for_the_newest(
    tmp_path: Path, number: int
) -> None:
    """At random steps and ranks; no trainer ends or saves with an old model as the newest."""
    seed = int(os.environ.get("EDL_STORM_SEED") or Random().randrange(1 << 30))  # noqa: S311 - printed
    print(f"\nEDL_STORM_SEED={seed} [{number}]")  # noqa: T201 - to repeat the run
    outcomes = Job(tmp_path / "job", Random(seed + number)).run()  # noqa: S311 - no secret
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:4} {outcome}")  # noqa: T201 - which moments there were
    assert sum(outcomes.values()) == FREEZES_OF_A_JOB
