"""How long synchronous training stands still when trainers come, go, die and freeze.

Trainers are processes and signals are real; what counts is the time until every member has made a
step in the round after the change, read from the monotonic clock that all of them share.
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
from e2e.measure.bars import Bar
from e2e.measure.processes import busy_seconds, cpu_seconds, others_percent
from tests.sdk.sync.fleets import Fleet
from tests.sdk.sync.storms import LOSSES, Change, Storm

Json = dict[str, Any]
CHANGE_S = 3.0
"""The issue's bar: from a membership change to the next training step."""
WORLDS = (2, 4, 8)
RANKS = (0, -1)
"""Of those that are lost: the first, which leads, and the last."""
_ROUNDS_A_TURN = 30
_FOR_EVER = 1_000_000
_PAUSE_S = 0.02
"""At the end of each step: eight processes on two cores are not to fight for them."""


def run(setting: Setting) -> Result:
    """Each kind of change, with the member of rank 0 and with the last one."""
    turns = max(1, setting.rounds // _ROUNDS_A_TURN)
    whole = turns > 1
    worlds = WORLDS if whole else WORLDS[:1]
    raw: Json = {}
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as home:
        found = flavours(Path(home))
        for flavour in found if whole else found[:1]:
            for world in worlds:
                setting.tell(f"rounds: {flavour.name}, {world} trainers, {turns} turns")
                folder = Path(home) / f"{flavour.name}-{world}"
                folder.mkdir()
                raw[f"{flavour.name}_{world}"] = _changes(flavour, folder, world, turns)
    kinds = [*LOSSES, "grow"]
    worst = {kind: max(found[kind]["worst_s"] for found in raw.values()) for kind in kinds}
    bars = tuple(Bar(f"change_{kind}_s", worst[kind], "s", CHANGE_S) for kind in kinds)
    growth = {f"{kind}_worst_s": [value] * len(setting.sizes) for kind, value in worst.items()}
    return Result(bars, growth, raw)


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
    found = {kind: _figures([one for one in changes if one.what == kind]) for kind in LOSSES}
    grown = [one for one in changes if one.what == "grow"]
    starts = {"start_worst_s": max(one.start_s for one in grown)}
    return {**found, "grow": {**_figures(grown), **starts}, "cpu_used_by_others_percent": others}


def _turn(storm: Storm, kind: str, rank: int) -> None:
    """Loses a member and replaces it."""
    victim = storm.fleet.ranked()[rank]
    storm.lose(victim, kind)
    if kind == "stop":
        victim.process.kill()
    storm.grow()


def _figures(changes: Sequence[Change]) -> Json:
    first = [one.took_s for one in changes if one.rank_0]
    others = [one.took_s for one in changes if not one.rank_0]
    told: Json = {"rank_0_s": first, "others_s": others}
    told["worst_s"] = max([*first, *others])
    told["pause_worst_s"] = max(one.pause_s for one in changes)
    return told
