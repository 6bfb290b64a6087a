"""Facts about users' files in PaddlePaddle: error messages; run by `test_paddle.py`."""

import os
import signal

import numpy as np
import paddle
from edl import model as models
from edl.errors import CheckpointError
from edl.sync.replica import Micro

from tests.sdk.model.paddle_facts import check
from tests.sdk.model.paddle_models import MODEL, batch, far, file, folder, refusal

AT = Micro(11, 2, 0)


def backward(text: str) -> models.ModelError:
    """The error of a micro-batch with this file."""
    replica = models.replica(file(text), trainer="trainer-7")
    try:
        replica.backward(batch(), 1.0, AT)
    except models.ModelError as error:
        return error
    raise AssertionError("nothing was raised")


def errors_name_function_step_and_trainer() -> None:
    """And the user's line."""
    error = backward("def loss(outputs, labels):\n    return outputs.nothing(labels)\n")
    assert isinstance(error, models.UserCodeError)
    text = str(error)

    assert text.startswith("loss(outputs, labels) of ")
    assert "failed at step 12, micro-batch 3 of 16 records on trainer-7: AttributeError" in text
    assert "return outputs.nothing(labels)" in error.trace
    assert "paddle/" not in error.trace


def errors_inside_layers_are_the_models() -> None:
    """A shape that does not fit: PaddlePaddle's own words, in one line."""
    text = "def feed(records):\n    return records['inputs'][:, :5], records['labels']\n"
    error = backward(text)

    assert str(error).startswith("the model of ")
    assert "ValueError: (InvalidArgument)" in str(error)
    assert "\n" not in str(error)


def too_little_memory_is_reported_plainly() -> None:
    """With step, batch, trainer and what to change, wherever PaddlePaddle runs out of it."""
    for text in (
        "def loss(outputs, labels):\n    return paddle.zeros([1 << 40]).sum() * outputs.sum()\n",
        "def feed(records):\n    raise MemoryError\n",
    ):
        error = backward(text)
        assert isinstance(error, models.OutOfMemory), repr(error)
        assert "out of memory at step 12, micro-batch 3 of 16 records on trainer-7" in str(error)
        assert "lower --batch-size or raise --micro-batches" in str(error)


def losses_must_be_one_number_of_the_outputs() -> None:
    """Not numpy's, and not one for each record."""
    assert "does not depend on the parameters" in str(
        backward("def loss(outputs, labels):\n    return float(outputs.mean())\n")
    )
    loss_line = "    return nn.functional.cross_entropy(outputs, labels, reduction='none')\n"
    text = str(backward("def loss(outputs, labels):\n" + loss_line))
    assert "an array of shape [16]: it must return one number" in text


def models_and_optimizers_must_be_paddles() -> None:
    """The error names their type."""
    for model, message in (
        (file("def model():\n    return 3\n"), "returned 'int': it must return a paddle.nn.Layer"),
        (file(optimizer="'adam'"), "returned 'str': it must return one of paddle.optimizer"),
        (file(optimizer="paddle.optimizer.LBFGS(parameters=parameters)"), "LBFGS evaluates losses"),
        (
            file(
                optimizer="paddle.optimizer.SGD(paddle.optimizer.lr.ReduceOnPlateau(0.1), "
                "parameters=parameters)"
            ),
            "ReduceOnPlateau waits for a metric",
        ),
        (file("def model():\n    return nn.ReLU()\n"), "has no trainable parameters"),
        (
            file("def model():\n    return nn.Linear(6, 3).to(dtype='float64')\n"),
            "parameter 'weight' is float64",
        ),
    ):
        assert message in refusal(lambda: models.replica(model))  # noqa: B023 - called at once


def predictions_are_rows() -> None:
    """Of whatever the model or the file gives; anything else is refused."""
    plain = models.predict(models.replica(file()), batch(5))
    named = "def predict(outputs):\n    return {'digit': outputs.argmax(1), 'raw': outputs}\n"
    several = "def predict(outputs):\n    return outputs, outputs[:, 0]\n"
    short = "def predict(outputs):\n    return outputs[:2]\n"

    assert plain["outputs"].shape == (5, 3)
    assert list(models.predict(models.replica(file(named)), batch(5))) == ["digit", "raw"]
    predictions = models.predict(models.replica(file(several)), batch(5))
    assert {name: array.shape for name, array in predictions.items()} == {
        "outputs0": (5, 3),
        "outputs1": (5,),
    }
    text = refusal(lambda: models.predict(models.replica(file(short)), batch(5)))
    assert "shape [2, 3] for 5 records" in text


def exports_come_back() -> None:
    """As a file of PaddlePaddle's, or as the user's function writes it."""
    model, place = file(), folder() / "models" / "one"
    replica, other = models.replica(model, seed=3), models.replica(model, seed=4)
    models.export(other, place)
    models.export(replica, place)  # replaces it
    assert models.restore(other, place) is None
    assert far(replica.parameters(), other.parameters()) == 0.0
    assert sorted(path.name for path in place.parent.iterdir()) == ["one"]

    own = "def export(model, folder):\n    paddle.save(model.state_dict(), f'{folder}/mine')\n"
    models.export(models.replica(file(own), seed=3), place)
    assert [path.name for path in place.iterdir()] == ["mine"]
    assert far(dict(paddle.load(str(place / "mine"), return_numpy=True)), replica.parameters()) == 0
    nothing = "def export(model, folder):\n    pass\n"
    text = refusal(lambda: models.export(models.replica(file(nothing)), place))
    assert "wrote no files" in text
    assert [path.name for path in place.iterdir()] == ["mine"]


def exports_of_other_models_are_refused() -> None:
    """The array that differs is named; damaged files are reported as such."""
    place = folder() / "one"
    models.export(models.replica(file(MODEL.replace("8", "9"))), place)
    replica = models.replica(file())
    text = refusal(lambda: models.restore(replica, place), CheckpointError)
    assert "belongs to another model: 0.weight has shape [6, 9] instead of [6, 8]" in text
    (place / "model.pdparams").write_bytes(b"nothing")
    text = refusal(lambda: models.restore(replica, place), CheckpointError)
    assert "cannot read " in text
    assert "model.pdparams: " in text


def sigterm_is_what_it_was() -> None:
    """PaddlePaddle's own handler ends the process; whatever Python had set before is back."""
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    models.replica(file())
    os.kill(os.getpid(), signal.SIGTERM)
    np.zeros(1).sum()

    assert signals == [signal.SIGTERM]


FACTS = (
    errors_name_function_step_and_trainer,
    errors_inside_layers_are_the_models,
    too_little_memory_is_reported_plainly,
    losses_must_be_one_number_of_the_outputs,
    models_and_optimizers_must_be_paddles,
    predictions_are_rows,
    exports_come_back,
    exports_of_other_models_are_refused,
    sigterm_is_what_it_was,
)

if __name__ == "__main__":
    check(FACTS)
