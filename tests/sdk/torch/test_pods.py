"""Pods of two processes that hold a model together (FSDP2), under changes: curve and books."""

import os
import signal
from pathlib import Path
from random import Random

import pytest
from edl import clock

from tests.sdk.sync.storms import HANG_S, Storm, _Act
from tests.sdk.torch.curves import CLOSE, alone, far_from, losses_of
from tests.sdk.torch.pods import Pod, PodFleet, send
from tests.sdk.torch.test_changes import OPTIONS, TORCH, Json

CHANGES = int(os.environ.get("EDL_POD_CHANGES") or 12)
PODS, RECORDS, EPOCHS = 2, 2048, 4
STEPS_OF_A_CHANGE = 20
"""Of one second each: the end comes later than the last change."""
_PAUSE_S = 1.0
_RETURN_S = 240.0
"""Ends a hang: a pod that returns imports torch twice, on cores that others share."""
_ONE_LOST = {"kill a process": signal.SIGKILL, "stop a process": signal.SIGSTOP}
_ALL_LOST = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600 + 60 * CHANGES),
    pytest.mark.skipif(
        not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
    ),
]


class PodStorm(Storm):
    """Random changes to pods, one at a time, so that one pod is left that has the state."""

    def begin(self, spares: int = 0) -> None:
        """As in `Storm`; without spares."""
        del spares
        began_s = clock.monotonic_s()
        for _ in range(self.size):
            self.fleet.add()
        self._settle([_Act("start")], began_s, _RETURN_S)

    def _change(self) -> None:
        began_s = clock.monotonic_s()
        act = self._act()
        if act.kind in _ONE_LOST:
            began_s = self._await_return(began_s)
        self._settle([act], began_s, _RETURN_S)

    def _act(self) -> _Act:
        active = self.fleet.active()
        frozen = [member for member in self.fleet.members if member.lives and member.frozen]
        kinds = ["thaw"] if frozen else []
        if len(active) == self.size:
            kinds = [*_ONE_LOST, *_ALL_LOST]
        kind = self.chance.choice(kinds or ["grow"])
        if kind in _ONE_LOST:
            self._returning = self.chance.choice(active)
            assert isinstance(self._returning, Pod)
            send(self.chance.choice(self._returning.workers()), _ONE_LOST[kind])
        elif kind in _ALL_LOST:
            victim = self.chance.choice(active)
            victim.send(_ALL_LOST[kind])
            if kind != "stop":
                self.fleet.ended([victim], HANG_S)
        elif kind == "grow":
            self.fleet.add()
        else:
            frozen[0].send(signal.SIGCONT)
        return _Act(kind)

    def _await_return(self, since_s: float) -> float:
        """Waits until the agent has started a pod's processes again; returns when they came."""
        pod = self._returning

        def has_returned() -> bool:
            pod.look()
            return pod.arrived_s > since_s

        assert self.fleet.until(has_returned, _RETURN_S), pod.log.read_text(encoding="utf-8")[
            -2000:
        ]
        return pod.arrived_s


def test_pods_come_and_go_without_a_trace(tmp_path: Path) -> None:
    """Loss within 1e-5 of one trainer that holds the whole model, and each record trained once an epoch."""
    for name in ("alone", "storm"):
        (tmp_path / name).mkdir()
    records = max(RECORDS, CHANGES * STEPS_OF_A_CHANGE * OPTIONS["batch_size"] // EPOCHS)
    options: Json = {**OPTIONS, "records": records, "epochs": EPOCHS}
    curve, end = alone(tmp_path / "alone", options)
    hurry = tmp_path / "hurry"
    slow = {**options, "hurry": str(hurry), "pause_s": _PAUSE_S}
    with PodFleet(tmp_path / "storm", slow) as fleet:
        storm = PodStorm(fleet, PODS, Random(7))  # noqa: S311 - decides which changes are made
        storm.begin()
        storm.blow(CHANGES)
        ends = storm.finish(hurry)
        status = fleet.status()
        for change in storm.changes:
            print(change)  # noqa: T201
    losses = losses_of(fleet.members)
    assert losses.keys() == curve.keys()
    far = far_from(curve, losses)
    assert not far, far
    dataset = status["datasets"]["train"]
    assert (status["state"], dataset["done_records"]) == ("done", records * EPOCHS)
    assert dataset["dropped_records"] == 0
    whole = [member.end for member in ends if member.end is not None and not member.end["late"]]
    assert whole
    assert all(abs(line["digest"] - end["digest"]) <= CLOSE * end["digest"] for line in whole)
