"""Compares loss curves of a job with changing members and of one with fixed members.

Both have the same seed and effective batch; they differ in rounding, because sums of floats depend
on their order.
"""

import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from bench import picture
from bench.benchmark import Result, Setting
from bench.digits import BATCH, STEPS_AN_EPOCH, Flavour, flavours
from e2e.measure.criteria import Criterion
from tests.sdk.sync.curves import ACTS, MEMBERS, Curve, differ, train
from tests.sdk.sync.fleets import Fleet

Json = dict[str, Any]
RELATIVE, ACCURACY_POINTS, ASYNCHRONOUS_POINTS = 1e-3, 0.5, 1.0
"""The required limits: relative difference of a step's loss, differences of final accuracy."""
_PICTURE = Path("build/bench/curves.png")
_SEEDS, _QUICK = 5, 10
_EPOCHS, _PAUSE_S = 12, 0.1
_MAX_STALE = 1
"""Without a bound a momentum of 0.9 diverges with four trainers: see docs/training.md."""
_SERVERS, _SLOW_S, _END_S = 2, 0.05, 240.0


def run(setting: Setting) -> Result:
    """Trains five seeds with each framework, and plots the first one."""
    seeds = _SEEDS if setting.rounds > _QUICK else 1
    raw: Json = {}
    drawn: tuple[str, Curve, Curve] | None = None
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as home:
        for flavour in flavours(Path(home)):
            comparisons = []
            for seed in range(seeds):
                setting.report_progress(f"curves: {flavour.name}, seed {seed}")
                folder = Path(home) / f"{flavour.name}-{seed}"
                fixed, alone, elastic = _jobs(flavour, folder, seed)
                comparisons.append(_compared(fixed, elastic))
                comparisons[-1]["rounding"] = differ(fixed, alone).relative
                setting.report_progress(
                    f"curves: {flavour.name}, seed {seed}, with parameter servers"
                )
                accuracy = _asynchronous(flavour, folder / "asynchronous", seed)
                comparisons[-1]["asynchronous_accuracy"] = accuracy
                if not seed:
                    drawn = flavour.name, fixed, elastic
            raw[flavour.name] = comparisons
    if drawn is not None:
        picture.curves(_PICTURE, *drawn, batch=BATCH)
    all_comparisons = [comparison for per_seed in raw.values() for comparison in per_seed]
    relative = max(comparison["relative"] for comparison in all_comparisons)
    points = max(comparison["accuracy_points"] for comparison in all_comparisons)
    less = [
        100 * (comparison["fixed_accuracy"] - comparison["asynchronous_accuracy"])
        for comparison in all_comparisons
    ]
    criteria = (
        Criterion("curves_loss_difference", relative, "", RELATIVE),
        Criterion(
            "curves_loss_difference_of_rounding",
            max(comparison["rounding"] for comparison in all_comparisons),
            "",
        ),
        Criterion("curves_accuracy_difference_points", points, "points", ACCURACY_POINTS),
        Criterion(
            "curves_asynchronous_mean_less_points", mean(less), "points", ASYNCHRONOUS_POINTS
        ),
        Criterion("curves_asynchronous_worst_less_points", max(less), "points"),  # of 360 images
    )
    return Result(criteria, {"relative": [relative] * len(setting.sizes)}, raw)


def _asynchronous(flavour: Flavour, folder: Path, seed: int) -> float:
    """Returns the accuracy of the job with parameter servers, while trainers are killed and added."""
    folder.mkdir()
    steps = _EPOCHS * STEPS_AN_EPOCH
    options = {**flavour.options, "seed": seed, "shuffle_seed": seed, "epochs": _EPOCHS}
    options |= {"test": str(folder.parents[1] / "digits-test.npz"), "pause_s": _SLOW_S}
    options["max_staleness"] = _MAX_STALE
    member = "bench.servers_member"
    with Fleet(
        folder, options, python=flavour.python, program=member, parameter_servers=_SERVERS
    ) as fleet:
        for _ in range(MEMBERS):
            fleet.add()
        for share in (0.25, 0.5):
            if not fleet.until(lambda: fleet.newest_step() >= share * steps, _END_S):  # noqa: B023 - called at once
                break
            fleet.active()[0].process.kill()
            fleet.add()
        if not fleet.ended(fleet.members, _END_S):
            raise RuntimeError(f"trainers do not end: see {folder}")
    accuracies = [
        member.end["test"]["accuracy"] for member in fleet.members if member.end is not None
    ]
    if not accuracies:
        raise RuntimeError(fleet.members[-1].log.read_text(encoding="utf-8")[-300:])
    return float(accuracies[-1])


def _jobs(flavour: Flavour, folder: Path, seed: int) -> tuple[Curve, Curve, Curve]:
    """Trains with fixed members, with one member (for the effect of rounding) and changing ones."""
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
    difference = differ(fixed, elastic)
    return {
        "steps": len(fixed.losses),
        "relative": difference.relative,
        "absolute": difference.absolute,
        "accuracy_points": difference.accuracy * 100,
        "fixed_accuracy": fixed.accuracy,
        "elastic_accuracy": elastic.accuracy,
        "changes": list(elastic.whats),
        "members": [min(elastic.worlds), max(elastic.worlds)],
        "fixed_members": sorted(set(fixed.worlds)),
    }
