"""Random changes to two pods of two processes that hold a model together (FSDP2): curve and books.

Run by `test_pods.py`, as a program that has torch: `python -m tests.sdk.torch.pod_storm FOLDER CHANGES SEED`.
"""

import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

import torch
from edl import clock

from tests.sdk.sync.fleets import figures_of
from tests.sdk.sync.storms import HANG_S, Storm, _Act
from tests.sdk.torch.curves import CLOSE, far_from, losses_of
from tests.sdk.torch.forked_pods import load_lazy_parts
from tests.sdk.torch.pods import PROCESSES, ForkedProcess, Pod, PodFleet, send
from tests.sdk.torch.test_changes import OPTIONS, Json

PODS, LEAST_RECORDS, EPOCHS = 2, 2048, 4
STEPS_OF_A_CHANGE = 25
"""Of half a second each: the end comes later than the last change."""
_PAUSE_S = 0.5
_STEP_S = 1.0
"""No usual step takes as long: one ended in so much time before a change."""
_END_S, _END_OF_A_CHANGE_S = 600.0, 12.0
_ONE_LOST = {"kill a process": signal.SIGKILL, "stop a process": signal.SIGSTOP}
_ALL_LOST = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_RETURN_S = 240.0
"""Ends a hang."""
_MEASURE_EVERY = 25
"""Changes between two measurements."""
_GROWTH_MB, _GROWTH_THREADS = 60.0, 8


class PodStorm(Storm):
    """Random changes to pods, one at a time, so that one pod is left that has the state."""

    def begin(self, spares: int = 0) -> None:
        """As in `Storm`; without spares."""
        del spares
        began_s = clock.monotonic_s()
        for _ in range(self.size):
            self.fleet.add()
        self._settle([_Act("start")], began_s, _RETURN_S)

    def measure(self) -> None:
        """Records the resources of the processes of all pods, of which each may be young, and their greatest."""
        figures = [
            figures_of(pid)
            for pod in self.fleet.active()
            if isinstance(pod, Pod)
            for pid in pod.workers()
        ]
        self.figures.append([{key: max(line[key] for line in figures) for key in figures[0]}])

    def assert_flat(self) -> None:
        """Raises an AssertionError where processes have more memory or threads than at first."""
        first, last = self.figures[min(1, len(self.figures) - 1)][0], self.figures[-1][0]
        assert last["memory_mb"] - first["memory_mb"] <= _GROWTH_MB, self.figures
        assert last["threads"] - first["threads"] <= _GROWTH_THREADS, self.figures

    def summary(self) -> str:
        """What happened: the pauses, which contain that of each step, and resources first and last."""
        pauses_s = sorted((change.pause_s, change.kind) for change in self.changes)
        kinds = Counter(change.kind for change in self.changes[1:])
        longest = ", ".join(f"{pause_s:.1f} s ({kind})" for pause_s, kind in pauses_s[-3:])
        return (
            f"{len(self.changes) - 1} changes ({dict(kinds)}); longest time without a step, median "
            f"{median(pause_s for pause_s, _ in pauses_s):.1f} s, the three longest {longest}, outside of "
            f"changes too {self.longest_gap_s():.1f} s; {self.figures[0]} to {self.figures[-1]}"
        )

    def _change(self) -> None:
        acted_s = began_s = clock.monotonic_s()
        act = self._act()
        if act.kind in _ONE_LOST:
            began_s = self._await_return(began_s)
        self._settle([act], began_s, _RETURN_S)
        pause_s = self._gap_s(acted_s - _STEP_S, clock.monotonic_s())
        self.changes[-1] = replace(self.changes[-1], pause_s=pause_s)

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


def main(folder: Path, changes: int, seed: int) -> None:
    """Loss within 1e-5 of one trainer that holds the whole model, and each record trained once an epoch.

    Where the seed is even, there is a pod more, and those that come get the state in parts, from two.
    """
    in_parts = seed % 2 == 0
    pods = PODS + in_parts
    forked: list[ForkedProcess] = []
    for _ in range(changes + pods + 2):
        forked.append(ForkedProcess(forked))
    records = max(LEAST_RECORDS, changes * STEPS_OF_A_CHANGE * OPTIONS["batch_size"] // EPOCHS)
    options: Json = {**OPTIONS, "records": records, "epochs": EPOCHS}
    end_s = _END_S + changes * _END_OF_A_CHANGE_S
    for name in ("alone", "storm"):
        (folder / name).mkdir()
    with PodFleet(folder / "alone", options, forked, 0) as fleet:
        member = fleet.add()
        assert fleet.ended([member], end_s)
        curve, end = losses_of([member]), member.end
    assert end is not None
    hurry = folder / "hurry"
    slow = {**options, "hurry": str(hurry), "pause_s": _PAUSE_S, "in_parts": in_parts}
    with PodFleet(folder / "storm", slow, forked, PROCESSES) as fleet:
        storm = PodStorm(fleet, pods, Random(seed))  # noqa: S311 - decides which changes are made
        storm.begin()
        for done in range(changes):
            if done % _MEASURE_EVERY == 0:
                storm.measure()
            storm.blow(1)
            print(storm.changes[-1], flush=True)  # noqa: T201 - shown where it fails
        storm.measure()
        ends = storm.finish(hurry, end_s)
        status = fleet.status()
    for process in forked:
        process.close()
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
    worst = max(abs(loss - curve[step]) for step, loss in losses.items())
    print(f"seed {seed}: {storm.summary()}; {len(curve)} steps, losses differ by {worst:.1e}")  # noqa: T201 - its answer
    storm.assert_flat()


if __name__ == "__main__":
    torch.set_num_threads(1)
    load_lazy_parts()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
