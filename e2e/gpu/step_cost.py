"""The cell "step": the cost of a step of `edl.torch.Training` compared with plain DistributedDataParallel.

One trainer, in one process, steps two equal models in turn; its program is `e2e.gpu.step_program`.
"""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from e2e.gpu.cell import Figure, Run
from e2e.gpu.job import ROOT, Job

WITHIN = 1.02
"""The goal: a step of EDL takes at most this many times as long as a plain one."""
LIMIT = 1.10
"""The cell fails above this ratio."""
LOSSES_AGREE = 2e-2
"""Relative: bf16 keeps eight bits."""
STAGES = ("plain DDP steps", "Training steps", "the pairs are timed")
"""Lines of the program; the next one comes within the limit of `e2e.gpu.job`."""
_PLACES = 5


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model, and numbers of steps."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    context: int
    batch_size: int
    warm: int
    """Pairs of steps that are not counted."""
    pairs: int
    counted: int = 20
    """Further steps of each model, whose host synchronisations are counted on CUDA."""


CARD = Sizes(768, 12, 12, 16_384, 256, batch_size=64, warm=20, pairs=300)
"""110 million parameters; about 10^13 floating-point operations a step."""
SMALL = Sizes(32, 2, 2, 128, 16, batch_size=8, warm=3, pairs=12)


def play(run: Run) -> None:
    """Times the steps; the ratio is judged on a card only.

    Args:
        run: On "cuda", or on "cpu" with a small model; DDP has no group for the stand-in.

    Raises:
        CellError: The program failed, the models differ, or a step of EDL takes too long.
    """
    is_card = run.device != "cpu"
    raw = _run_program(run, CARD if is_card else SMALL)
    figures = figures_of(raw)
    run.record(**figures)
    plain, edl = raw["loss_plain"], raw["loss_edl"]
    run.check(
        abs(edl - plain) <= LOSSES_AGREE * abs(plain),
        f"the losses of the last step differ: {plain:.4f} of plain DDP, {edl:.4f} of EDL",
    )
    if is_card:
        ratio = figures["ratio"]
        run.check(ratio <= LIMIT, f"a step of EDL takes {ratio} times as long as a plain one")


def figures_of(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of the cell.

    Args:
        raw: What the program has written, with `pairs` of seconds: a plain step's and EDL's.
    """
    ratios = [edl_s / plain_s for plain_s, edl_s in raw["pairs"]]
    low, *_, high = quantiles(ratios, n=20, method="inclusive")
    figures: dict[str, Figure] = {
        "step_plain_ms": round(1000 * median(plain_s for plain_s, _ in raw["pairs"]), 3),
        "step_edl_ms": round(1000 * median(edl_s for _, edl_s in raw["pairs"]), 3),
        "ratio": round(median(ratios), 4),
        "ratio_p5": round(low, 4),
        "ratio_p95": round(high, 4),
        "within_2_percent": median(ratios) <= WITHIN,
        "pairs": len(ratios),
        "parameters_millions": round(raw["parameters"] / 1e6, 3),
        "loss_plain": raw["loss_plain"],
        "loss_edl": raw["loss_edl"],
    }
    for side, held_bytes in raw["held_bytes"].items():
        figures[f"device_memory_{side}_mb"] = round(held_bytes / 1e6, 1)
    for side, places in raw["syncs"].items():
        figures[f"syncs_{side}"] = sum(places.values()) / raw["counted"]
    if raw["syncs"]:
        figures["sync_places"] = places_text(raw["syncs"]["edl"])
    return figures


def places_text(places: dict[str, int]) -> str:
    """Returns the most frequent places with their counts, such as "torch/step.py:103 20"."""
    return ", ".join(f"{place} {count}" for place, count in Counter(places).most_common(_PLACES))


def _run_program(run: Run, sizes: Sizes) -> dict[str, Any]:
    """Runs the program as the only trainer of a job; returns its figures."""
    result = run.folder / "steps.json"
    options = {"device": run.device, "result": str(result), "sizes": asdict(sizes)}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with Job(run.folder / "job") as job:
        words = ("-m", "e2e.gpu.step_program", json.dumps(options))
        trainer = job.start("trainer", *words, PYTHONPATH=paths)
        for stage in STAGES:
            trainer.says(stage)
        trainer.ends()
    raw: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return raw
