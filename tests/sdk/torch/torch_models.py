"""Facts about users' files in torch, as `edl train` uses them; run by `test_torch.py`."""

import tempfile
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
import torch
from edl import Session, Settings
from edl import model as models
from edl.errors import CheckpointError
from edl.sources.arrays import from_arrays
from edl.sync import SyncResult

from tests.master.serving import TOKEN, Served
from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.devices import DEVICE

HEAD = f"import torch\nfrom torch import nn\nDEVICE = {str(DEVICE)!r}\n"
PARTS = {
    "model": "def model():\n    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICE)\n",
    "loss": "def loss(outputs, labels):\n    return nn.functional.cross_entropy(outputs, labels)\n",
    "optimizer": "def optimizer(parameters):\n    return torch.optim.Adam(parameters, 0.02)\n",
    "metrics": "def metrics():\n    return {'right': lambda o, y: (o.argmax(1) == y).float().mean()}\n",
}
RECORDS = 256


FOLDER = tempfile.TemporaryDirectory()
"""Ends with the process."""


def file(**parts: str) -> models.Model:
    """A user's file, with other functions than those of `PARTS` where they are given."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    path = folder / "net.py"
    path.write_text(HEAD + "".join({**PARTS, **parts}.values()), encoding="utf-8")
    return models.load(path)


def records(count: int = RECORDS) -> dict[str, Any]:
    """Points of three classes; numpy's own types, which torch's layers do not take."""
    chance = np.random.default_rng(5)
    inputs = chance.normal(size=(count, 6))
    return {"inputs": inputs, "labels": (inputs[:, 0] > 0).astype("int32") + (inputs[:, 1] > 0.5)}


def train(model: models.Model, **options: Any) -> tuple[Any, SyncResult, Any]:
    """Trains a file in a job of one trainer; returns the books of the data set, too."""
    arrays = records()
    settings: dict[str, Any] = {
        "dataset": from_arrays("train", arrays["inputs"], arrays["labels"]),
        "batch_size": 32,
        "micro_batches": 4,
        "epochs": 4,
        "shuffle_seed": 1,
        "shuffle": "records",
        "constant_batch": True,
        "code": {},
        "checkpoints": None,
        "checkpoint_steps": 0,
        "on_nan": "fail",
        "seed": 0,
        "on_step": lambda _: None,
        "between": lambda _: None,
        **options,
    }
    with tempfile.TemporaryDirectory() as folder:
        master = Served(Path(folder, "journal"), heartbeat_s=0.5)
        url = f"http://127.0.0.1:{master.port}"
        member = Session(Settings(url, TOKEN, "trainer-7", grace_s=5.0, patience_s=20.0))
        replica: Any = models.replica(model, seed=3, trainer="trainer-7")
        try:
            result = replica.train(**settings, member=member)
            return replica, result, master.service.status()["datasets"]["train"]
        finally:
            member.leave()
            master.stop()


def error_of(**parts: str) -> str:
    """The error of training a file."""
    with pytest.raises(models.ModelError) as caught:
        train(file(**parts))
    return str(caught.value)


def files_are_trained() -> None:
    """The loss falls, each record is trained once an epoch, evaluations have the metrics."""
    first: list[float] = []
    replica, result, _ = train(file(), on_step=lambda step: first.append(step.metrics["loss"]))
    assert (result.steps, result.records) == (4 * 8, 4 * RECORDS)
    assert result.metrics["loss"] < 0.7 * first[0], (first[0], result.metrics)
    measured = models.evaluate(replica, records(60))
    assert measured.keys() == {"loss", "right"}
    assert measured["right"] > 0.6
    assert replica.layer.training


def evaluations_between_steps_change_nothing() -> None:
    """Nor do their random numbers: dropout is seeded by the micro-batch."""
    dropping = "def model():\n    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))\n"
    curves: list[list[float]] = []
    for between in (lambda _: None, lambda _: torch.rand(7)):
        curve: list[float] = []
        train(
            file(model=dropping),
            between=between,
            on_step=lambda step, curve=curve: curve.append(step.metrics["loss"]),
        )
        curves.append(curve)
    assert curves[0] == curves[1]


def a_schedule_comes_with_the_optimizer() -> None:
    """As a pair, and it is stepped after each step."""
    pair = (
        "def optimizer(parameters):\n"
        "    own = torch.optim.SGD(parameters, 0.5)\n"
        "    return own, torch.optim.lr_scheduler.StepLR(own, 10, 0.1)\n"
    )
    replica, _, _ = train(file(optimizer=pair))
    assert replica.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.1**3)


def models_are_exported_and_restored() -> None:
    """From an export, and from a checkpoint: predictions are the same; another model is named."""
    with tempfile.TemporaryDirectory() as folder:
        replica, _, _ = train(file(), checkpoints=f"{folder}/saved", checkpoint_steps=10)
        models.export(replica, Path(folder, "export"))
        assert torch.load(Path(folder, "export/model.pt"))["0.weight"].shape == (8, 6)
        expected = models.predict(replica, records(9))
        for path in ("export", "saved"):
            fresh = models.replica(file(), seed=8)
            step = models.restore(fresh, Path(folder, path))
            assert step == (None if path == "export" else 32)
            assert np.array_equal(models.predict(fresh, records(9))["outputs"], expected["outputs"])
        wider = file(model=PARTS["model"].replace("8", "9"))
        with pytest.raises(CheckpointError, match=r"0\.weight has shape \[8, 6\] instead of"):
            models.restore(models.replica(wider), Path(folder, "export"))
        torch.save([1], Path(folder, "export/model.pt"))
        with pytest.raises(CheckpointError, match="holds list instead of tensors by name"):
            models.restore(models.replica(file()), Path(folder, "export"))


def errors_name_function_step_and_trainer() -> None:
    """In one line, with what the user has to change."""
    text = error_of(loss="def loss(outputs, labels):\n    return outputs.nothing(labels)\n")
    assert text.startswith("loss(outputs, labels) of ")
    assert "failed at step 1, micro-batch 1 of 8 records on trainer-7: AttributeError" in text
    text = error_of(loss="def loss(outputs, labels):\n    return torch.zeros(1 << 52)\n")
    assert "out of memory at step 1, micro-batch 1 of 8 records on trainer-7" in text
    assert "lower --batch-size or raise --micro-batches" in text
    text = error_of(loss="def loss(outputs, labels):\n    return float(outputs.mean())\n")
    assert "does not depend on the parameters" in text
    text = error_of(loss="def loss(outputs, labels):\n    return outputs.sum(1)\n")
    assert "an array of shape [8]: it must return one number" in text


def unusable_models_are_refused() -> None:
    """Before anything is trained; the error names what was returned."""
    lbfgs = "def optimizer(parameters):\n    return torch.optim.LBFGS(parameters)\n"
    plateau = (
        "def optimizer(parameters):\n    own = torch.optim.SGD(parameters, 0.1)\n"
        "    return own, torch.optim.lr_scheduler.ReduceLROnPlateau(own)\n"
    )
    for parts, message in (
        ({"optimizer": "def optimizer(parameters):\n    return 'adam'\n"}, "returned 'str'"),
        ({"optimizer": lbfgs}, "LBFGS computes losses itself"),
        ({"optimizer": plateau}, "waits for a metric"),
        ({"model": "def model():\n    return nn.Tanh()\n"}, "has no trainable parameters"),
        (
            {
                "optimizer": PARTS["optimizer"].replace(
                    "parameters, 0", "nn.Linear(2, 2).parameters(), 0"
                )
            },
            "parameters that are not in the model",
        ),
    ):
        with pytest.raises(models.ModelError) as caught:
            models.replica(file(**parts))
        assert message in str(caught.value), str(caught.value)
    with pytest.raises(models.ModelError, match="leave --async out"):
        models.worker(file())


def data_that_cannot_be_read_is_left_out() -> None:
    """Its task is dropped at the end, with the reason, and all else is trained."""
    arrays = records()

    def read(number: int) -> Any:
        if number == 100:
            raise ValueError("the disk says no")
        return arrays["inputs"][number], arrays["labels"][number]

    def collate(rows: list[Any]) -> Any:
        inputs, labels = zip(*rows, strict=True)
        return np.stack(inputs), np.stack(labels)

    source = edl.from_function("train", read, RECORDS, collate)
    _, _, books = train(file(), dataset=source, epochs=1, shuffle_seed=None)
    assert books["dropped_records"] >= 1, books
    assert books["done_records"] + books["dropped_records"] == RECORDS, books


_TWO_INPUTS = """
import collections
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
    def forward(self, left, right):
        return self.layer(torch.cat([left, right], 1))
def model():
    return Net()
Pair = collections.namedtuple("Pair", "left right")
def feed(records):
    inputs, labels = records
    return Pair(inputs[:, :3], inputs[:, 3:]), labels
"""


def inputs_may_be_a_named_tuple() -> None:
    """Its fields become tensors; a sequence that cannot be made of tensors is an error of the file."""
    _, result, _ = train(file(model=_TWO_INPUTS), epochs=1)
    assert result.steps == 8
    odd = "class Pair(list):\n    def __init__(self, a, b):\n        super().__init__([a, b])\n"
    text = error_of(model=_TWO_INPUTS.replace("def feed", f"{odd}def feed"))
    assert text.startswith("the conversion to tensors of "), text


def tensors_are_joined_record_by_record() -> None:
    """Batches of a data set of tensors are tensors of its records, and copies."""
    inputs = torch.arange(12.0).reshape(6, 2)
    source: Any = from_arrays("train", inputs, torch.arange(6)).source
    picked, labels = source.batch([source.pick(np.array([4, 0, 1]))])
    picked[:] = 0
    assert labels.tolist() == [4, 0, 1]
    joined, _ = source.batch([source.read(None, 0, 2), source.read(None, 2, 3)])
    assert joined.tolist() == inputs[:3].tolist() == [[0, 1], [2, 3], [4, 5]]


FACTS = (
    inputs_may_be_a_named_tuple,
    tensors_are_joined_record_by_record,
    files_are_trained,
    evaluations_between_steps_change_nothing,
    a_schedule_comes_with_the_optimizer,
    models_are_exported_and_restored,
    errors_name_function_step_and_trainer,
    unusable_models_are_refused,
    data_that_cannot_be_read_is_left_out,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    with FOLDER:
        check(FACTS)
