"""Models in plain numpy, and what is true of all models."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl import model as models
from edl.data.checkpoints import save_checkpoint
from edl.errors import CheckpointError
from edl.model.protocols import ReplicaAdapter
from edl.model.seeding import seed_everything
from edl.model.user_code import UserCode
from edl.sync.replica import Micro, State

from tests.sdk.conftest import Join

EXAMPLE = Path(__file__).parents[3] / "examples/models/digits_numpy.py"
KINDS: tuple[dict[str, Any], ...] = (
    {"kind": "sgd", "learning_rate": 0.1},
    {"kind": "momentum", "learning_rate": 0.1},
    {"kind": "momentum", "learning_rate": 0.1, "nesterov": True},
    {"kind": "adagrad", "learning_rate": 0.1, "initial": 0.1},
    {"kind": "adam", "learning_rate": 0.01},
)
NAMES = ("sgd", "momentum", "nesterov", "adagrad", "adam")
Make = Callable[..., models.Model]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes files: the example's text with some of it replaced, and more."""
    before, count = list(sys.path), 0

    def file(*arguments: str, **replaced: str) -> models.Model:
        nonlocal count
        text = EXAMPLE.read_text()
        for name, body in replaced.items():
            begin = text.index(f"def {name}(")
            text = text[:begin] + body + "".join(text[begin:].partition("\n\n\n")[1:])
        path = tmp_path / f"net{count}.py"
        path.write_text("\n".join((text, *arguments)))
        count += 1
        return models.load(path)

    yield file
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("edl_model_")]:
        del sys.modules[name]


def _batch(size: int = 16, seed: int = 0) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    images = chance.random((size, 64)).astype(np.float32)
    return {"images": images, "labels": chance.integers(0, 10, size)}


def _optimizer(settings: dict[str, Any]) -> str:
    return f"def optimizer(parameters):\n    return {settings!r}"


def _far(first: dict[str, Any], other: dict[str, Any]) -> float:
    assert first.keys() == other.keys()
    return max(float(np.abs(first[name] - other[name]).max()) for name in first)


def _step(replica: ReplicaAdapter, number: int, scale: float = 1.0) -> float:
    metrics = replica.backward(_batch(seed=number), 1.0, Micro(number, 0, number))
    replica.step(scale)
    return float(metrics["loss"])


def test_the_example_learns(make: Make) -> None:
    """Its gradients are right: the loss of one batch goes down to almost nothing."""
    replica = models.replica(make(), seed=1)
    losses = []
    for step in range(200):
        losses.append(replica.backward(_batch(), 1.0, Micro(step, 0, 0))["loss"])
        replica.step(1.0)

    assert losses[-1] < 0.05 < losses[0]
    assert models.evaluate(replica, _batch())["accuracy"] == 1.0


@pytest.mark.parametrize("settings", KINDS, ids=NAMES)
def test_members_do_not_matter(make: Make, settings: dict[str, Any]) -> None:
    """Two that share a step's records end as one that computes all, for all optimizers."""
    model = make(optimizer=_optimizer(settings))
    alone, *both = (models.replica(model, seed=1) for _ in range(3))
    for step in range(4):
        records = _batch(16, step)
        halves = [{name: array[at : at + 8] for name, array in records.items()} for at in (0, 8)]
        alone.backward(records, 1.0, Micro(step, 0, 0))
        alone.step(1.0)
        summed = np.zeros(alone.size, np.float32)
        for index, (member, half) in enumerate(zip(both, halves, strict=True)):
            member.backward(half, 0.5, Micro(step, index, 0))
            out = np.empty(member.size, np.float32)
            member.read_gradient(out)
            summed += out
        for member in both:
            member.write_gradient(summed)
            member.step(1.0)

    assert _far(both[0].state().arrays, both[1].state().arrays) == 0.0
    assert _far(both[0].state().arrays, alone.state().arrays) < 1e-4


@pytest.mark.parametrize("settings", KINDS, ids=NAMES)
def test_newcomers_go_on_like_the_others(make: Make, settings: dict[str, Any]) -> None:
    """With parameters, momenta and the count of steps."""
    model = make(optimizer=_optimizer(settings))
    old, new = models.replica(model, seed=1), models.replica(model, seed=2)
    _step(old, 0)
    _step(new, 9)
    state = old.state()
    new.load(State({name: array.copy() for name, array in state.arrays.items()}, state.extra))
    for step in (1, 2):
        _step(old, step)
        _step(new, step)

    assert _far(old.state().arrays, new.state().arrays) == 0.0
    assert old.state().extra == new.state().extra == {"steps": 3}


def test_states_of_other_models_are_refused(make: Make) -> None:
    """With the array, or what is missing."""
    replica = models.replica(make())
    state = replica.state()
    arrays = {**state.arrays, "model/b1": np.zeros(3)}
    with pytest.raises(CheckpointError, match=r"model/b1 has shape \[3\] instead of \[64\]"):
        replica.load(State(arrays, state.extra))
    with pytest.raises(CheckpointError, match=r"of another framework"):
        replica.load(State(state.arrays, {}))


def test_dropped_gradients_leave_nothing(make: Make) -> None:
    """The step is done again as if it had not been begun."""
    model = make()
    first, other = models.replica(model, seed=1), models.replica(model, seed=1)
    first.backward(_batch(seed=7), 1.0, Micro(0, 0, 0))
    first.clear()
    assert _step(first, 0) == _step(other, 0)
    assert _far(first.state().arrays, other.state().arrays) == 0.0


def test_learning_rates_can_be_scaled(make: Make) -> None:
    """A step of half the size."""
    model = make(optimizer=_optimizer(KINDS[0]))
    whole, half = models.replica(model, seed=1), models.replica(model, seed=1)
    before = whole.parameters()
    _step(whole, 0)
    _step(half, 0, 0.5)
    for name, array in before.items():
        moved = whole.parameters()[name] - array
        assert np.allclose(half.parameters()[name] - array, moved / 2, atol=1e-6)


def test_workers_give_gradients_by_name(make: Make) -> None:
    """Of the parameters that were loaded; there are no tables."""
    worker = models.worker(make(), seed=1)
    first = worker.gradients(_batch(), lambda _table, _ids: np.zeros((0, 0), np.float32))
    worker.load({name: array * 0 for name, array in worker.initial().items()})
    other = worker.gradients(_batch(), lambda _table, _ids: np.zeros((0, 0), np.float32))

    assert worker.tables() == {}
    assert worker.optimizer() == {"kind": "momentum", "learning_rate": 0.1, "momentum": 0.9}
    assert {name: array.shape for name, array in first.dense.items()} == {
        name: array.shape for name, array in worker.initial().items()
    }
    assert other.metrics["loss"] == pytest.approx(np.log(10), abs=1e-5)
    with pytest.raises(
        CheckpointError, match=r"the servers' model belongs to another model: w1 is"
    ):
        worker.load({})


def test_the_same_seed_is_the_same_model(make: Make) -> None:
    """In every trainer; and random numbers of a micro-batch are its own."""
    model = make()
    first, same, other = (models.replica(model, seed=seed).parameters() for seed in (1, 1, 2))
    drawn = []
    for seed in (5, 5, 6):
        seed_everything(seed)
        drawn.append(np.random.rand())  # noqa: NPY002 - what users' code may do

    assert _far(first, same) == 0.0 < _far(first, other)
    assert drawn[0] == drawn[1] != drawn[2]


def test_predictions_are_rows(make: Make) -> None:
    """A row for each record, by the names that `predict` gives."""
    replica = models.replica(make())
    predictions = models.predict(replica, _batch(5))
    unnamed = models.replica(make("del predict"))

    assert {name: array.shape for name, array in predictions.items()} == {"digit": (5,)}
    assert models.predict(unnamed, {"images": _batch(5)["images"]})["outputs"].shape == (5, 10)
    scalar = models.replica(make(predict="def predict(outputs):\n    return outputs.sum()"))
    with pytest.raises(models.ModelError, match=r"'outputs' has shape \[\] for 5 records"):
        models.predict(scalar, _batch(5))


def test_exports_come_back(make: Make, tmp_path: Path) -> None:
    """As numpy's file, or as the user's function writes it."""
    model, place = make(), tmp_path / "models/one"
    replica, other = models.replica(model, seed=1), models.replica(model, seed=2)
    models.export(other, place)
    models.export(replica, place)
    assert models.restore(other, place) is None
    assert _far(replica.parameters(), other.parameters()) == 0.0

    own = "def export(model, folder):\n    (folder / 'size').write_text(str(len(model.parameters)))"
    models.export(models.replica(make(own)), place)
    assert [(path.name, path.read_text()) for path in place.iterdir()] == [("size", "4")]


def test_exports_leave_what_others_have_in_their_folder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the working directory, and where a folder of the export is replaced."""
    own = "def export(model, folder):\n    (folder / 'a').mkdir()\n    (folder / 'a/new').touch()"
    place = tmp_path / "home"
    for name in ("notes/old", "a/old"):
        (place / name).mkdir(parents=True)
    monkeypatch.chdir(place)
    models.export(models.replica(make()), ".")
    assert sorted(path.name for path in place.iterdir()) == ["a", "model.npz", "notes"]
    models.export(models.replica(make(own)), place)

    assert sorted(path.name for path in place.iterdir()) == ["a", "notes"]
    assert [path.name for path in (place / "a").iterdir()] == ["new"]
    assert (place / "notes/old").is_dir()


def test_exports_that_fail_leave_nothing(make: Make, tmp_path: Path) -> None:
    """The folder that was there stays, and none is half written."""
    place = tmp_path / "models/one"
    models.export(models.replica(make()), place)
    bad = models.replica(make("def export(model, folder):\n    (folder / 'a').touch()\n    1 / 0"))
    with pytest.raises(models.UserCodeError, match=r"export\(model, folder\) of .* failed at the"):
        models.export(bad, place)
    with pytest.raises(models.ModelError, match=r"wrote no files"):
        models.export(models.replica(make("def export(model, folder):\n    pass")), place)
    assert [path.name for path in place.iterdir()] == ["model.npz"]
    assert [path.name for path in place.parent.iterdir()] == ["one"]
    (tmp_path / "file").touch()
    with pytest.raises(models.ModelError, match=r"cannot write .*: Not a directory"):
        models.export(bad, tmp_path / "file/one")


def test_checkpoints_are_restored(make: Make, join: Join, tmp_path: Path) -> None:
    """One, or the newest of a folder, of which only the model's arrays are taken."""
    model = make()
    replica, other = models.replica(model, seed=1), models.replica(model, seed=2)
    _step(replica, 0)
    saved = save_checkpoint(tmp_path, replica.state().arrays, step=4, member=join())
    assert saved is not None
    assert models.restore(other, tmp_path) == 4
    assert _far(replica.parameters(), other.parameters()) == 0.0
    assert models.restore(models.replica(model), saved.path) == 4
    save_checkpoint(tmp_path, {"mine": np.zeros(3)}, member=join("trainer-1"))
    with pytest.raises(
        CheckpointError, match=r"00002 holds no model saved by edl: its arrays have"
    ):
        models.restore(other, tmp_path)


def test_restoring_needs_something(make: Make, tmp_path: Path) -> None:
    """A folder without a model, a damaged file, and one of another model are named."""
    replica = models.replica(make())
    with pytest.raises(
        CheckpointError, match=r"holds no model: name a checkpoint, a folder of checkpoints"
    ):
        models.restore(replica, tmp_path)
    (tmp_path / "model.npz").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"cannot read .*model.npz"):
        models.restore(replica, tmp_path)
    np.savez(tmp_path / "model.npz", other=np.zeros(3))
    with pytest.raises(CheckpointError, match=r"model.npz belongs to another model: w1 is missing"):
        models.restore(replica, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("'adam'", "returned 'adam'.*kinds are sgd, momentum, adagrad, adam"),
        ("{'kind': 'newton'}", "kinds are sgd"),
        ("{'kind': 'sgd'}", "sgd needs a learning_rate above 0"),
        (
            "{'kind': 'sgd', 'learning_rate': 1, 'beta': 1}",
            "sgd has no setting 'beta'; its settings are",
        ),
        ("{'kind': 'adam', 'learning_rate': 1, 'beta1': 1.0}", "beta1 1.0: it must be from 0 to"),
    ],
)
def test_optimizers_are_checked(make: Make, settings: str, message: str) -> None:
    """With those that there are, and their settings."""
    model = make(optimizer=f"def optimizer(parameters):\n    return {settings}")
    with pytest.raises(models.ModelError, match=message):
        models.replica(model)


def test_models_are_checked(make: Make) -> None:
    """Of what kind they are, and their parameters."""
    with pytest.raises(
        models.ModelError, match=r"returned 'int': it must return a paddle.nn.Layer"
    ):
        models.replica(make(model="def model():\n    return 3"))
    for expression, message in (("np.zeros(3)", "float64"), ("3", "int")):
        text = f"def model():\n    found = Network()\n    found.parameters['x'] = {expression}\n"
        with pytest.raises(models.ModelError, match=f"parameter 'x' is of type {message}"):
            models.replica(make(model=text + "    return found"))


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("loss", "return 3.0", "must return a pair for a model in plain numpy"),
        (
            "loss",
            "return outputs, outputs",
            r"an array of shape \[16, 10\]: it must return one number",
        ),
        ("loss", "return outputs.no, 1", r"loss\(outputs, labels\) of .* failed at step 4, micro-"),
        ("loss", "return 1.0, outputs[:, :2]", r"gradients\(slope\) of .* failed at step 4"),
        ("feed", "return records", r"feed\(records\) of .* returned a dict of images, labels: it"),
        ("feed", "raise MemoryError", "out of memory at step 4, micro-batch 3 of 16 records on t1"),
    ],
)
def test_mistakes_in_a_step_are_named(make: Make, name: str, body: str, message: str) -> None:
    """The function, the step, the batch and the trainer."""
    arguments = {"loss": "outputs, labels", "feed": "records"}[name]
    text = f"def {name}({arguments}):\n    {body}"
    model = make(text) if name == "feed" else make(**{name: text})
    replica = models.replica(model, trainer="t1")
    with pytest.raises(models.ModelError, match=message):
        replica.backward(_batch(), 1.0, Micro(3, 2, 0))


def test_gradients_must_fit(make: Make) -> None:
    """In name and shape."""
    text = (
        "def model():\n    found = Network()\n    found.gradients = lambda slope: {'w1': slope}\n"
    )
    replica = models.replica(make(model=text + "    return found"))
    with pytest.raises(models.ModelError, match=r"'w1' of shape \[16, 10\]: it must return arrays"):
        replica.backward(_batch(), 1.0, Micro(0, 0, 0))


@pytest.mark.parametrize("returned", ["3", "{'loss': max}", "{'a': 3}", "{3: max}", "[max]"])
def test_metrics_are_functions_by_name(make: Make, returned: str) -> None:
    """Beside the loss, which is always among them."""
    with pytest.raises(models.ModelError, match=r"must return a dict of functions of"):
        models.replica(make(metrics=f"def metrics():\n    return {returned}"))


def test_metrics_are_numbers(make: Make) -> None:
    """One for a batch; errors name the metric."""
    text = "def metrics():\n    return {'mine': lambda outputs, labels: None}"
    with pytest.raises(models.ModelError, match=r"metric 'mine' of .* returned 'NoneType'"):
        models.evaluate(models.replica(make(metrics=text)), _batch())
    text = text.replace("None}", "labels.no}")
    with pytest.raises(models.UserCodeError, match=r"metric 'mine' of .* failed at an evaluation"):
        models.evaluate(models.replica(make(metrics=text)), _batch())
    none = models.replica(make("del metrics"))
    assert models.evaluate(none, _batch()).keys() == {"loss"}


def test_own_errors_are_not_wrapped(make: Make) -> None:
    """They are raised unchanged."""
    text = "def feed(records):\n    import edl\n    raise edl.DataError('as it is')"
    with pytest.raises(Exception, match=r"^as it is$"):
        models.evaluate(models.replica(make(text)), _batch())


@pytest.mark.parametrize(
    ("records", "inputs", "labels"),
    [
        ({"a": 1, "b": 2}, 1, 2),
        ({"labels": 2, "images": 1}, 1, 2),
        ({"a": 1, "y": 2, "b": 3}, {"a": 1, "b": 3}, 2),
        ({"a": 1}, 1, None),
        ((1, 2), 1, 2),
    ],
)
def test_arrays_need_no_feed(make: Make, records: Any, inputs: Any, labels: Any) -> None:
    """Labels are named so, or are the second of two; there may be none."""
    assert UserCode(make()).feed(records) == (inputs, labels)


def test_a_feed_may_give_anything(make: Make) -> None:
    """Pairs of it; and predictions may be several arrays."""
    feed = "def feed(records):\n    return [records['images'] * 0, records['labels']]"
    several = "def predict(outputs):\n    return outputs, outputs.argmax(1)"
    predictions = models.predict(models.replica(make(feed, predict=several)), _batch(5))

    assert {name: array.shape for name, array in predictions.items()} == {
        "outputs0": (5, 10),
        "outputs1": (5,),
    }
    assert not predictions["outputs0"].any()


def test_other_records_need_a_feed(make: Make) -> None:
    """Which array is which, or what rows and bytes mean."""
    calls = UserCode(make())
    with pytest.raises(models.ModelError, match=r"which of the arrays a, b, c has the labels"):
        calls.feed({"a": 1, "b": 2, "c": 3})
    with pytest.raises(models.ModelError, match=r"has no function feed\(records\).*a list of 1"):
        calls.feed([b""])
