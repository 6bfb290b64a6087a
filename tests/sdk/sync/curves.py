"""The loss over the steps of a job whose members change, beside one whose members do not."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from edl.sync import SyncStep

from tests.master.serving import Served
from tests.sdk.sync import program
from tests.sdk.sync.crews import Crew, Trainer
from tests.sdk.sync.fleets import Fleet
from tests.sdk.sync.storms import Storm

Json = dict[str, Any]
MEMBERS, SPARES = 4, 3
_REACH_S = 60.0
_ALONE_S = 120.0


@dataclass(frozen=True)
class Curve:
    """Losses and members of a job, step by step."""

    losses: list[float]
    worlds: list[int]
    accuracy: float
    """On test data, at the end."""
    whats: tuple[str, ...] = ()
    """Kinds of changes to its members."""


@dataclass(frozen=True)
class Difference:
    """The difference of two curves."""

    relative: float
    """Largest difference of a step's loss, relative to that loss."""
    absolute: float
    accuracy: float


Act = Callable[[Storm], None]
ACTS: Sequence[tuple[float, Act]] = (
    (0.05, lambda storm: storm.lose(storm.fleet.ranked()[0], "kill")),
    (0.15, lambda storm: storm.grow()),
    (0.25, lambda storm: storm.lose(storm.fleet.ranked()[-1], "term")),
    (0.35, lambda storm: storm.lose(storm.fleet.ranked()[1], "stop")),
    (0.45, lambda storm: storm.grow()),
    (0.55, lambda storm: storm.lose_master(storm.fleet.ranked()[0])),
    (0.70, lambda storm: storm.grow()),
)
"""Share of the steps to wait for, and what is done then."""


def train(
    folder: Path,
    options: Json,
    *,
    acts: Sequence[tuple[float, Act]] = (),
    pause_s: float = 0.0,
    members: int = MEMBERS,
    spares: int = SPARES,
    python: str = sys.executable,
) -> Curve:
    """Trains a job to its end.

    Args:
        folder: For its files; created here.
        options: For `tests.sdk.sync.program`; `steps` is their number.
        acts: What to do to its members, and when.
        pause_s: Makes steps so long that there is time for it.
        members: Number of trainers at the start.
        spares: So many are started to be let in by acts.
        python: Runs the trainers.
    """
    folder.mkdir(parents=True)
    hurry, steps = folder / "hurry", options["steps"]
    fleet_options = {name: value for name, value in options.items() if name != "steps"}
    fleet_options |= {"hurry": str(hurry), "go": str(folder / "go"), "pause_s": pause_s}
    with Fleet(folder, fleet_options, python=python) as fleet:
        storm = Storm(fleet, members, Random(0))  # noqa: S311 - it decides nothing here
        storm.begin(spares if acts else 0)
        for share, act in acts:
            assert fleet.until(lambda: fleet.newest_step() >= share * steps, _REACH_S)  # noqa: B023 - called at once
            act(storm)
        ends = storm.finish(hurry)
    assert ends
    assert all(member.end is not None and member.end["end"] for member in ends), folder
    judged = [
        member.end["test"] for member in ends if member.end is not None
    ]  # who came late has not
    accuracies = {figures["accuracy"] for figures in judged if figures}
    assert len(accuracies) == 1, accuracies
    return _curve(fleet, accuracies.pop(), tuple(change.kind for change in storm.changes[1:]))


def train_alone(folder: Path, options: Json) -> Curve:
    """Trains the same job to its end with one trainer, in a thread of this process.

    Args:
        folder: For the master's journal.
        options: As for `train`.
    """
    options = {name: value for name, value in options.items() if name != "steps"}
    test = options.pop("test")
    replica, dataset = program.build(options)
    losses: list[float] = []

    def note(_: Trainer, step: SyncStep) -> None:
        losses.append(step.metrics["loss"])

    # a long heartbeat interval: no lease may end on a slow machine, repeated records add steps
    master = Served(folder, heartbeat_s=_ALONE_S)
    crew = Crew(master, dataset=dataset, **options)
    assert crew.add(note, replica).end(_ALONE_S).whole
    master.stop()
    return Curve(losses, [1] * len(losses), program.judge(replica, test)["accuracy"])


def differ(curve: Curve, other: Curve) -> Difference:
    """Compares two jobs with the same number of steps."""
    pairs = list(zip(curve.losses, other.losses, strict=True))
    return Difference(
        max(abs(a - b) / max(abs(a), abs(b)) for a, b in pairs),
        max(abs(a - b) for a, b in pairs),
        abs(curve.accuracy - other.accuracy),
    )


def _curve(fleet: Fleet, accuracy: float, whats: tuple[str, ...]) -> Curve:
    """All members of a round tell the same of a step.

    A member that freezes may be the only one to have made the step in hand: the others make it
    again, in a later round, and that one is the job's.
    """
    steps: dict[tuple[int, int], tuple[float, int]] = {}
    for step in (step for member in fleet.members for step in member.steps):
        key, words = (step["step"], step["round"]), (step["loss"], step["world"])
        first_words = steps.setdefault(key, words)
        assert first_words == words, f"step and round {key}: {first_words} and {words}"
    last = {number: words for (number, _), words in sorted(steps.items())}
    assert sorted(last) == list(range(1, len(last) + 1))
    losses, worlds = zip(*(last[number] for number in sorted(last)), strict=True)
    return Curve(list(losses), list(worlds), accuracy, whats)
