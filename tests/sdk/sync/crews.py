"""Trainers of one job as threads of one process, with a real master in another thread."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edl
from edl import clock
from edl.master.session import Loop, Session
from edl.master.settings import Settings
from edl.sync import Replica, SyncResult, SyncStep
from edl.sync.engine import Engine

from tests.master.serving import TOKEN, Served
from tests.sdk.sync.replicas import Softmax, data

_MEET_S = 60.0
Act = Callable[["Trainer", SyncStep], None]


def done_records(master: Served) -> int:
    """Number of acknowledged records."""
    return int(master.service.status()["datasets"]["points"]["done_records"])


def kept_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, the newest last."""
    paths = sorted(folder.glob("checkpoint-*"))
    return [edl.read_checkpoint(path).step for path in paths]


class Watched(Session):
    """A session that exposes its loop."""

    loop: Engine

    def register(self, loop: Loop) -> None:
        """As in `Session`."""
        if isinstance(loop, Engine):
            self.loop = loop
        super().register(loop)


class Trainer:
    """One trainer in a thread; `steps` are its steps so far."""

    def __init__(
        self, crew: "Crew", name: str, replica: Replica, act: Act | None, changes: dict[str, Any]
    ) -> None:
        self.name, self.replica = name, replica
        self._options, self._act = {**crew.options, **changes}, act
        self._stays = self._options.pop("stays", False)
        """Whether it stays in the job after training, until the test makes it leave."""
        url, patience_s = f"http://127.0.0.1:{crew.master.port}", crew.patience_s
        settings = Settings(url, TOKEN, name, grace_s=5.0, patience_s=patience_s)
        self.member = self._options.pop("member", None) or Watched(settings)
        self.steps: list[SyncStep] = []
        self.began = threading.Event()
        """Set by its first step."""
        self.result: SyncResult | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self, timeout_s: float = 60.0) -> SyncResult:
        """Waits for its end, which must be regular."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} hangs after {len(self.steps)} steps"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def wait(self, timeout_s: float) -> None:
        """Waits for its end, regular or not."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} hangs after {len(self.steps)} steps"

    def error_of(self, timeout_s: float = 60.0) -> str:
        """Waits for its end, which must be an error; returns the error's type and text."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} hangs after {len(self.steps)} steps"
        assert self.error is not None, f"{self.name} had no error: {self.result}"
        return f"{type(self.error).__name__}: {self.error}"

    def _run(self) -> None:
        try:
            self.result = edl.sync.train(
                self.replica, on_step=self._saw, member=self.member, **self._options
            )
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self.error = error
        finally:
            if not self._stays:
                self.member.leave()

    def _saw(self, step: SyncStep) -> None:
        self.steps.append(step)
        self.began.set()
        if self._act is not None:
            self._act(self, step)


class Gate:
    """A callback after each step: trainers wait for each other at first, and stop at one step."""

    def __init__(self, world_size: int, at: int = 0) -> None:
        """Makes an open one.

        Args:
            world_size: A step with fewer members ends when that many are in a round.
            at: The step at which all wait until `open` is set.
        """
        self._world_size, self._at = world_size, at
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, trainer: "Trainer", step: SyncStep) -> None:
        """Waits after a step; passed to `Crew.add`."""
        together(trainer, step, self._world_size)
        if step.step == self._at:
            self.reached.set()
            self.open.wait(_MEET_S)


def meet(trainer: "Trainer", world_size: int) -> None:
    """Waits until that many members are in a round."""
    until_s = clock.monotonic_s() + _MEET_S
    while len(trainer.member.control().status()["rendezvous"]["members"]) < world_size:
        assert clock.monotonic_s() < until_s, "the others do not come"
        threading.Event().wait(0.02)


def together(trainer: "Trainer", step: SyncStep, world_size: int) -> None:
    """After a step with fewer members, waits until the trainer has a round with that many."""
    if step.world_size >= world_size:
        return
    meet(trainer, world_size)
    member, until_s = trainer.member, clock.monotonic_s() + _MEET_S
    assert isinstance(member, Watched)
    while not member.loop.rendezvous.newer(step.round):
        assert clock.monotonic_s() < until_s, "it does not hear of the others"
        threading.Event().wait(0.02)


class Crew:
    """All trainers of a job."""

    def __init__(self, master: Served, patience_s: float = 20.0, **options: Any) -> None:
        self.master, self.patience_s = master, patience_s
        self.options = {
            "dataset": data(),
            "batch_size": 32,
            "micro_batches": 4,
            "epochs": 2,
            "shuffle_seed": 3,
            **options,
        }
        self.trainers: list[Trainer] = []

    def add(
        self,
        act: Act | None = None,
        replica: Replica | None = None,
        name: str = "",
        **changes: Any,
    ) -> Trainer:
        """Starts one more trainer, with options of its own if any are given."""
        number = len(self.trainers)
        name = name or f"trainer-{number}"
        trainer = Trainer(self, name, replica or Softmax(number), act, changes)
        self.trainers.append(trainer)
        return trainer

    def pair(self, gate: "Gate", *replicas: Replica) -> list[Trainer]:
        """Starts two trainers that train together from step 3 on; the first has rank 0."""
        for rank in range(2):
            trainer = self.add(gate, replicas[rank] if replicas else None)
            assert trainer.began.wait(_MEET_S)
        return self.trainers
