"""Snapshots in memory: how long a process pauses for one, and how fast another pod has it."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from edl import Snapshots, clock
from edl.agent import holdings
from edl.agent.part_exchange import PartClient, PartServer
from edl.agent.snapshot_folder import MEMORY
from edl.collective.handshake import RoundPosition
from edl.collective.transport import listen
from edl.data.snapshot_parts import SnapshotPart, find_parts, reading
from edl.data.snapshots import RESTORE

from bench.benchmark import Result, Setting
from e2e.measure.criteria import Criterion

Json = dict[str, Any]
_BYTES, _ARRAYS = 1_000_000_000, 64
_SAVES, _COPIES = 8, 3
_SLOTS = 2
"""The first save of each has to find memory."""
_PAUSE_S = 0.5
_KEY = b"token"


def run(setting: Setting) -> Result:
    """Saves 1 GB some times, copies it to a neighbour on this machine, and fetches it back."""
    setting.report_progress("snapshots: 1 GB in memory, and on a neighbour")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="edl-bench-") as name:
        raw = _measure(Path(name))
    later_s = raw["pauses_s"][_SLOTS:]
    criteria = (
        Criterion("snapshot_pause_s", median(later_s), "s", _PAUSE_S),
        Criterion("snapshot_first_pause_s", max(raw["pauses_s"][:_SLOTS]), "s"),
        Criterion("snapshot_copy_gb_s", _BYTES / 1e9 / median(raw["copies_s"]), "GB/s"),
        Criterion("snapshot_fetch_s", raw["fetch_s"], "s"),
        Criterion("snapshot_load_s", raw["load_s"], "s"),
    )
    return Result(criteria, {}, raw)


def _measure(folder: Path) -> Json:
    here, there, third = (folder / name for name in ("here", "there", "third"))
    for place in (here, there, third):
        place.mkdir()
    chance = np.random.default_rng(0)
    state = {str(i): chance.random(_BYTES // _ARRAYS // 8) for i in range(_ARRAYS)}
    snapshots = Snapshots(environ={"EDL_SNAPSHOTS": str(here), "EDL_SNAPSHOT_ROUND": "1"})
    pauses_s = [_timed(partial(snapshots.save, step, state)) for step in range(_SAVES)]
    listener = listen("127.0.0.1", 0)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    server = PartServer(listener, _KEY, there)
    server.enter(RoundPosition(1, 1, 2))
    client = PartClient(RoundPosition(1, 0, 2), _KEY)
    copies_s = []
    for step in range(_COPIES):
        snapshots.save(_SAVES + step, state)
        part = max(find_parts(here), key=lambda each: each.step)
        copies_s.append(_timed(partial(_send, client, address, here, part)))
    newest = max(find_parts(there), key=lambda each: each.step)
    fetch_s = _timed(partial(client.fetch, address, 1, newest, third, 0))
    server.close()
    (third / RESTORE).write_bytes(holdings.dump([newest]))
    found = Snapshots(environ={"EDL_SNAPSHOTS": str(third)}).newest()
    if found is None:
        raise RuntimeError("the snapshot that was fetched is not found")
    return {
        "pauses_s": pauses_s,
        "copies_s": copies_s,
        "fetch_s": fetch_s,
        "load_s": _timed(found.state),
        "cores": os.cpu_count(),
    }


def _send(client: PartClient, address: str, folder: Path, part: SnapshotPart) -> None:
    with reading(folder, part) as descriptor:
        if descriptor is None:
            raise RuntimeError("the snapshot that was saved is not found")
        client.send(address, 1, part, descriptor)


def _timed(act: Callable[[], object]) -> float:
    """Seconds of one call."""
    began_s = clock.monotonic_s()
    act()
    return clock.monotonic_s() - began_s
