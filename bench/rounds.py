"""Pauses of synchronous training when trainers join, leave, die and freeze.

Trainers are real processes and get real signals. The pause ends when every member has made a step
in the next round; all processes read the same monotonic clock.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from bench.benchmark import Result, Setting
from bench.digits import Flavour, flavours
from e2e.measure.criteria import Criterion
from e2e.measure.processes import busy_seconds, cpu_seconds, others_percent
from tests.sdk.sync.fleets import Fleet
from tests.sdk.sync.storms import LOSSES, Change, Storm

Json = dict[str, Any]
CHANGE_S = 3.0
"""The required limit: from a membership change to the next training step."""
WORLDS = (2, 4, 8)
RANKS = (0, -1)
"""Ranks of the lost members: the first, which leads, and the last."""
_ROUNDS_A_TURN = 30
_FOR_EVER = 1_000_000
_PAUSE_S = 0.02
"""At the end of each step, so that eight processes do not compete for two cores."""


def run(setting: Setting) -> Result:
    """Measures each kind of change, of the member of rank 0 and of the last one."""
    turns = max(1, setting.rounds // _ROUNDS_A_TURN)
    whole = turns > 1
    worlds = WORLDS if whole else WORLDS[:1]
    raw: Json = {}
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as home:
        all_flavours = flavours(Path(home))
        for flavour in all_flavours if whole else all_flavours[:1]:
            for world in worlds:
                setting.report_progress(f"rounds: {flavour.name}, {world} trainers, {turns} turns")
                folder = Path(home) / f"{flavour.name}-{world}"
                folder.mkdir()
                raw[f"{flavour.name}_{world}"] = _changes(flavour, folder, world, turns)
    kinds = [*LOSSES, "grow"]
    worst = {kind: max(figures[kind]["worst_s"] for figures in raw.values()) for kind in kinds}
    criteria = tuple(Criterion(f"change_{kind}_s", worst[kind], "s", CHANGE_S) for kind in kinds)
    growth = {f"{kind}_worst_s": [value] * len(setting.sizes) for kind, value in worst.items()}
    return Result(criteria, growth, raw)


def _changes(flavour: Flavour, folder: Path, world: int, turns: int) -> Json:
    options = {**flavour.options, "epochs": _FOR_EVER, "pause_s": _PAUSE_S}
    began_s, busy_s, ours_s = perf_counter(), busy_seconds(), cpu_seconds(os.getpid())
    with Fleet(folder, options, python=flavour.python) as fleet:
        storm = Storm(fleet, world, Random(0))  # noqa: S311 - it decides nothing here
        storm.begin()
        for _ in range(turns):
            for rank in RANKS:
                for kind in LOSSES:
                    _turn(storm, kind, rank)
        changes = storm.changes[1:]
    ours_s = cpu_seconds(os.getpid()) - ours_s
    others = others_percent(busy_seconds() - busy_s, ours_s, perf_counter() - began_s)
    losses = {
        kind: _figures([change for change in changes if change.kind == kind]) for kind in LOSSES
    }
    grown = [change for change in changes if change.kind == "grow"]
    starts = {"start_worst_s": max(change.start_s for change in grown)}
    return {**losses, "grow": {**_figures(grown), **starts}, "cpu_used_by_others_percent": others}


def _turn(storm: Storm, kind: str, rank: int) -> None:
    """Removes a member and replaces it."""
    victim = storm.fleet.ranked()[rank]
    storm.lose(victim, kind)
    if kind == "stop":
        victim.process.kill()
    storm.grow()


def _figures(changes: Sequence[Change]) -> Json:
    first = [change.took_s for change in changes if change.rank_0]
    others = [change.took_s for change in changes if not change.rank_0]
    figures: Json = {"rank_0_s": first, "others_s": others}
    figures["worst_s"] = max([*first, *others])
    figures["pause_worst_s"] = max(change.pause_s for change in changes)
    return figures
