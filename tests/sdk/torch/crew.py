"""Trainers in torch as threads of one process, with a real master in another thread."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from edl import Session, Settings
from edl.sync import SyncResult, SyncStep
from edl.torch.step import MemberStep
from edl.torch.training import Training
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.master.serving import TOKEN, Served
from tests.sdk.torch.devices import DEVICE

LIMIT_S = 60.0
RECORDS, FEATURES = 512, 8
Act = Callable[["Trainer", SyncStep], None]


def points() -> TensorDataset:
    """Points on a plane."""
    chance = torch.Generator().manual_seed(2)
    inputs = torch.randn(RECORDS, FEATURES, generator=chance)
    return TensorDataset(inputs, inputs @ torch.arange(1.0, FEATURES + 1))


def network(seed: int = 0, *, width: int = 16, normed: bool = False) -> Any:
    """A perceptron; `seed` of its first parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norm = [torch.nn.BatchNorm1d(width)] if normed else []
        first, last = torch.nn.Linear(FEATURES, width), torch.nn.Linear(width, 1)
        return torch.nn.Sequential(first, *norm, torch.nn.Tanh(), last).to(DEVICE)


def loss_of(model: Any, inputs: Any, targets: Any) -> Any:
    """The mean squared error; records come from the host."""
    outputs = model(inputs.to(DEVICE)).squeeze(1)
    return torch.nn.functional.mse_loss(outputs, targets.to(DEVICE))


class Trainer:
    """One trainer in a thread; `steps` are its steps so far."""

    def __init__(
        self, crew: "Crew", name: str, model: Any, act: Act | None, changes: dict[str, Any]
    ):
        self.name, self.model, self._act = name, model, act
        url = f"http://127.0.0.1:{crew.master.port}"
        self.member = Session(Settings(url, TOKEN, name, grace_s=5.0, patience_s=20.0))
        self._options = {**crew.options, **changes}
        self._data: Dataset[Any] = self._options.pop("data", None) or points()
        self._body: Callable[[Any, MemberStep], None] = self._options.pop("body", train)
        self.steps: list[SyncStep] = []
        self.training: Training | None = None
        self.began = threading.Event()
        self.result: SyncResult | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Leaves after the current step, as after SIGTERM."""
        self.member.stop("the test says so")

    def end(self) -> SyncResult:
        """Waits for its end, which must be regular."""
        self._join()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    def error_of(self) -> str:
        """Waits for its end, which must be an error; returns the error's type and text."""
        self._join()
        assert self.error is not None, f"{self.name} had no error: {self.result}"
        return f"{type(self.error).__name__}: {self.error}"

    def _join(self) -> None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), f"{self.name} hangs after {len(self.steps)} steps"

    def _run(self) -> None:
        try:
            optimizer = torch.optim.Adam(self.model.parameters(), 0.02)
            with Training(
                self.model, optimizer, member=self.member, on_step=self._saw, **self._options
            ) as training:
                self.training = training
                loader = DataLoader(self._data, batch_sampler=training.sampler)
                for step in training.steps(loader):
                    self._body(self.model, step)
                self.result = training.result
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self.error = error
        finally:
            self.member.leave()

    def _saw(self, step: SyncStep) -> None:
        self.steps.append(step)
        self.began.set()
        if self._act is not None:
            self._act(self, step)


def train(model: Any, step: MemberStep) -> None:
    """The body of a program's loop."""
    for inputs, targets in step:
        step.backward(loss_of(model, inputs, targets))


class Crew:
    """All trainers of a job."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.master = Served(folder / "journal", heartbeat_s=0.5)
        self.options = {
            "records": RECORDS,
            "batch_size": 32,
            "micro_batches": 4,
            "epochs": 2,
            "shuffle_seed": 3,
            **options,
        }
        self.trainers: list[Trainer] = []

    def add(self, act: Act | None = None, model: Any = None, **changes: Any) -> Trainer:
        """Starts one more trainer, with options of its own if any are given."""
        number = len(self.trainers)
        model = network() if model is None else model
        self.trainers.append(Trainer(self, f"trainer-{number}", model, act, changes))
        return self.trainers[-1]

    def done(self) -> int:
        """Number of acknowledged records."""
        return int(self.master.service.status()["datasets"]["train"]["done_records"])

    def losses(self) -> dict[int, float]:
        """MemberStep -> loss, which all trainers must agree on."""
        losses: dict[int, float] = {}
        for trainer in self.trainers:
            for step in trainer.steps:
                assert losses.setdefault(step.step, step.metrics["loss"]) == step.metrics["loss"]
        return losses

    def close(self) -> None:
        """Ends the master."""
        self.master.stop()
