"""The loss curve of a job whose members change, beside that of one whose members do not.

Same seed, same effective batch; what differs is rounding, for sums of floats depend on their order.
"""

import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from bench import picture
from bench.benchmark import Result, Setting
from bench.digits import BATCH, STEPS_AN_EPOCH, Flavour, flavours
from e2e.measure.bars import Bar
from tests.sdk.sync.curves import ACTS, MEMBERS, Curve, differ, train
from tests.sdk.sync.fleets import Fleet

Json = dict[str, Any]
RELATIVE, ACCURACY_POINTS, ASYNCHRONOUS_POINTS = 1e-3, 0.5, 1.0
"""Of a step's loss; the issue's bars for the final accuracy."""
_PICTURE = Path("build/bench/curves.png")
_SEEDS, _QUICK = 5, 10
_EPOCHS, _PAUSE_S = 12, 0.1
_MOST_STALE = 1
"""Without a bound a momentum of 0.9 diverges with four trainers: see docs/training.md."""
_SERVERS, _SLOW_S, _END_S = 2, 0.05, 240.0


def run(setting: Setting) -> Result:
    """Five seeds with each framework, and a picture of the first one."""
    seeds = _SEEDS if setting.rounds > _QUICK else 1
    raw: Json = {}
    drawn: tuple[str, Curve, Curve] | None = None
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as home:
        for flavour in flavours(Path(home)):
            found = []
            for seed in range(seeds):
                setting.tell(f"curves: {flavour.name}, seed {seed}")
                folder = Path(home) / f"{flavour.name}-{seed}"
                fixed, alone, elastic = _jobs(flavour, folder, seed)
                found.append(_compared(fixed, elastic))
                found[-1]["rounding"] = differ(fixed, alone).relative
                setting.tell(f"curves: {flavour.name}, seed {seed}, with parameter servers")
                accuracy = _asynchronous(flavour, folder / "asynchronous", seed)
                found[-1]["asynchronous_accuracy"] = accuracy
                if not seed:
                    drawn = flavour.name, fixed, elastic
            raw[flavour.name] = found
    if drawn is not None:
        picture.curves(_PICTURE, *drawn, batch=BATCH)
    each = [one for found in raw.values() for one in found]
    relative = max(one["relative"] for one in each)
    points = max(one["accuracy_points"] for one in each)
    less = [100 * (one["fixed_accuracy"] - one["asynchronous_accuracy"]) for one in each]
    bars = (
        Bar("curves_loss_difference", relative, "", RELATIVE),
        Bar("curves_loss_difference_of_rounding", max(one["rounding"] for one in each), ""),
        Bar("curves_accuracy_difference_points", points, "points", ACCURACY_POINTS),
        Bar("curves_asynchronous_mean_less_points", mean(less), "points", ASYNCHRONOUS_POINTS),
        Bar("curves_asynchronous_worst_less_points", max(less), "points"),  # of 360 images
    )
    return Result(bars, {"relative": [relative] * len(setting.sizes)}, raw)


def _asynchronous(flavour: Flavour, folder: Path, seed: int) -> float:
    """Accuracy of the same job with parameter servers, while trainers are killed and added."""
    folder.mkdir()
    steps = _EPOCHS * STEPS_AN_EPOCH
    options = {**flavour.options, "seed": seed, "shuffle_seed": seed, "epochs": _EPOCHS}
    options |= {"test": str(folder.parents[1] / "digits-test.npz"), "pause_s": _SLOW_S}
    options["max_staleness"] = _MOST_STALE
    member = "bench.servers_member"
    with Fleet(
        folder, options, python=flavour.python, program=member, parameter_servers=_SERVERS
    ) as fleet:
        for _ in range(MEMBERS):
            fleet.add()
        for share in (0.25, 0.5):
            if not fleet.until(lambda: _version(fleet) >= share * steps, _END_S):  # noqa: B023 - called at once
                break
            fleet.active()[0].process.kill()
            fleet.add()
        if not fleet.ended(fleet.members, _END_S):
            raise RuntimeError(f"trainers do not end: see {folder}")
    found = [one.end["test"]["accuracy"] for one in fleet.members if one.end is not None]
    if not found:
        raise RuntimeError(fleet.members[-1].log.read_text(encoding="utf-8")[-300:])
    return float(found[-1])


def _version(fleet: Fleet) -> int:
    for one in fleet.members:
        one.look()
    return max(int(one.steps[-1]["step"]) if one.steps else 0 for one in fleet.members)


def _jobs(flavour: Flavour, folder: Path, seed: int) -> tuple[Curve, Curve, Curve]:
    """With fixed members, with one alone (what rounding does without any change), and changing."""
    data = folder.parent / "digits-test.npz"
    options = {**flavour.options, "seed": seed, "shuffle_seed": seed, "test": str(data)}
    options |= {"epochs": _EPOCHS, "steps": _EPOCHS * STEPS_AN_EPOCH}
    python = flavour.python
    return (
        train(folder / "fixed", options, python=python),
        train(folder / "alone", options, members=1, python=python),
        train(folder / "elastic", options, acts=ACTS, pause_s=_PAUSE_S, python=python),
    )


def _compared(fixed: Curve, elastic: Curve) -> Json:
    found = differ(fixed, elastic)
    return {
        "steps": len(fixed.losses),
        "relative": found.relative,
        "absolute": found.absolute,
        "accuracy_points": found.accuracy * 100,
        "fixed_accuracy": fixed.accuracy,
        "elastic_accuracy": elastic.accuracy,
        "changes": list(elastic.whats),
        "members": [min(elastic.worlds), max(elastic.worlds)],
        "fixed_members": sorted(set(fixed.worlds)),
    }
