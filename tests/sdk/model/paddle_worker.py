"""Facts about workers of PaddlePaddle models, for servers; run by `test_paddle.py`."""

from pathlib import Path
from typing import Any

import numpy as np
import paddle
from edl import model as models
from edl.errors import CheckpointError
from edl.model.numpy_optimizer import NumpyOptimizer

from tests.sdk.model.paddle_facts import check
from tests.sdk.model.paddle_models import (
    NORMED,
    OPTIMIZERS,
    Plain,
    batch,
    far,
    file,
    folder,
    refusal,
)

TABLES = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(50, 4, sparse=True, padding_idx=3)
        self.kept = nn.Embedding(50, 4)
        self.line = nn.Linear(12, 3)

    def forward(self, ids):
        parts = [self.rows(ids[:, :2]).sum(1), self.kept(ids[:, 0]), self.rows(ids[:, 2])]
        return self.line(paddle.concat(parts, 1))

def model():
    return Net()
"""


def records(size: int = 12, seed: int = 0) -> dict[str, Any]:
    """Three ids each; some come often, and one is padding."""
    chance = np.random.default_rng(seed)
    inputs = chance.integers(0, 10, (size, 3))
    inputs[0] = (3, 1, 3)
    return {"inputs": inputs, "labels": chance.integers(0, 3, size)}


class Server:
    """Rows in memory, and what was looked up."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.asked: list[tuple[str, Any]] = []

    def lookup(self, table: str, ids: Any) -> Any:
        """As `edl.servers` does it."""
        assert len(np.unique(ids)) == len(ids)
        self.asked.append((table, ids))
        return self.rows[ids]


def gradients_are_those_of_plain_paddle() -> None:
    """Dense ones by name; rows of sparse embeddings by id, though looked up twice in a batch."""
    model = file(TABLES)
    worker, plain = (
        models.worker(model, seed=3),
        Plain(file(TABLES.replace("sparse=True, ", "")), 3),
    )
    server = Server(plain.layer.rows.weight.numpy())
    computed = worker.gradients(records(), server.lookup)
    loss = plain.gradient(records(), 0)
    whole = {name: array.grad for name, array in plain.layer.named_parameters()}

    assert abs(computed.metrics["loss"] - loss) < 1e-6
    dense = {name: whole[name].numpy() for name in computed.dense}
    assert far(dense, computed.dense) < 1e-6
    assert sorted(dense) == ["kept.weight", "line.bias", "line.weight"]
    ids, rows = computed.sparse["rows"]
    expected = whole["rows.weight"].numpy()
    assert np.allclose(rows, expected[ids], atol=1e-6)
    assert set(np.flatnonzero(np.abs(expected).sum(1))) <= set(ids.tolist())
    assert not expected[3].any()
    assert np.isin(ids, records()["inputs"]).all()


def batches_follow_each_other() -> None:
    """Nothing of one is left for the next; a batch can be computed again after a load."""
    worker = models.worker(file(TABLES), seed=3)
    server = Server(np.full((50, 4), 0.5, np.float32))
    first = worker.gradients(records(), server.lookup)
    worker.load({name: array * 0 for name, array in worker.initial().items()})
    other = worker.gradients(records(seed=1), server.lookup)
    worker.load(models.worker(file(TABLES), seed=3).initial())
    again = worker.gradients(records(), server.lookup)

    assert far(first.dense, again.dense) == 0.0
    assert np.array_equal(first.sparse["rows"][1], again.sparse["rows"][1])
    assert other.metrics["loss"] != first.metrics["loss"]


def tables_are_the_same_in_all_trainers() -> None:
    """Their spread is that of the layer, their seed comes of name and seed."""
    first, same, other = (models.worker(file(TABLES), seed=seed).tables() for seed in (3, 3, 4))
    table = first["rows"]

    assert list(first) == ["rows"]
    assert first == same
    assert table.seed != other["rows"].seed
    assert table.dim == 4
    assert 0.2 < table.init < 0.5  # Xavier's range is 0.33 for 50 rows of 4


def evaluation_prediction_and_export_look_rows_up() -> None:
    """What is exported is a whole model, as if it had been trained without servers."""
    model = file(TABLES)
    worker, server = models.worker(model, seed=3), Server(np.eye(50, 4, dtype=np.float32))
    loss = models.evaluate(worker, records(), lookup=server.lookup)["loss"]
    outputs = models.predict(worker, records(), lookup=server.lookup)["outputs"]
    place = folder() / "model"
    models.export(worker, place, lookup=server.lookup)
    replica = models.replica(model, seed=8)

    assert models.restore(replica, place) is None
    assert abs(models.evaluate(replica, records())["loss"] - loss) < 1e-6
    assert np.allclose(models.predict(replica, records())["outputs"], outputs, atol=1e-6)
    assert outputs.shape == (12, 3)


def rows_need_a_lookup() -> None:
    """Without one the line says so."""
    worker = models.worker(file(TABLES))
    assert "pass a lookup" in refusal(lambda: models.evaluate(worker, records()))
    assert "pass a lookup" in refusal(lambda: models.export(worker, folder() / "x"))


def wrong_ids_are_named() -> None:
    """Beyond the table, or below zero."""
    worker, server = models.worker(file(TABLES)), Server(np.zeros((50, 4), np.float32))
    for wrong in (50, -1):
        bad = records()
        bad["inputs"][4, 0] = wrong
        text = refusal(lambda: worker.gradients(bad, server.lookup))  # noqa: B023 - called at once
        assert f"id {wrong} is not in 'rows'" in text


def optimizers_are_translated() -> None:
    """Those that the servers have."""
    settings = {
        call: models.worker(
            file(optimizer=f"paddle.optimizer.{call}, parameters=parameters)")
        ).optimizer()
        for call in (
            "SGD(0.1",
            "Momentum(0.2, 0.8, use_nesterov=True",
            "Adagrad(0.3, initial_accumulator_value=0.5",
            "Adam(0.4, beta1=0.5, beta2=0.6, epsilon=1e-3",
        )
    }
    assert list(settings.values()) == [
        {"kind": "sgd", "learning_rate": 0.1},
        {"kind": "momentum", "learning_rate": 0.2, "momentum": 0.8, "nesterov": True},
        {"kind": "adagrad", "learning_rate": 0.3, "initial": 0.5, "epsilon": 1e-6},
        {"kind": "adam", "learning_rate": 0.4, "beta1": 0.5, "beta2": 0.6, "epsilon": 1e-3},
    ]


def decay_clipping_and_schedules_are_translated() -> None:
    """And mean at the servers, for 12 steps of one trainer, what PaddlePaddle means by them."""
    lr = "paddle.optimizer.lr"
    for call in (
        "AdamW(0.1, weight_decay=0.1",
        "SGD(0.1, weight_decay=0.1",
        "SGD(0.1, grad_clip=nn.ClipGradByGlobalNorm(0.5)",
        "Adam(0.1, grad_clip=nn.ClipGradByValue(0.3)",
        f"SGD({lr}.StepDecay(0.5, 3, 0.2)",
        f"SGD({lr}.ExponentialDecay(0.5, 0.9)",
        f"SGD({lr}.CosineAnnealingDecay(0.5, 12, 0.1)",
        f"SGD({lr}.LinearWarmup(0.5, 5, 0.1, 0.5)",
        f"SGD({lr}.LinearWarmup({lr}.StepDecay(0.5, 3), 5, 0.0, 0.5)",
    ):
        text = f"paddle.optimizer.{call}, parameters=parameters)"
        settings = models.worker(file(optimizer=text)).optimizer()
        weight = paddle.create_parameter([3], "float32")
        theirs = {"w": np.array([1, -2, 0.5], np.float32)}
        weight.set_value(theirs["w"])
        scope = {"paddle": paddle, "nn": paddle.nn, "parameters": [weight]}
        optimizer = eval(text, scope)  # noqa: S307 - our own text
        ours = NumpyOptimizer(settings, theirs, Path("model.py"))
        for step in range(12):
            slope = np.array([0.1, -0.4, 0.3 * step], np.float32)
            (weight * paddle.to_tensor(slope)).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            rate = optimizer._learning_rate  # noqa: SLF001 - no public name for it
            if not isinstance(rate, float):
                rate.step()
            ours.step({"w": slope.copy()}, 1.0)
        assert np.allclose(weight.numpy(), theirs["w"], atol=1e-5), call


def options_of_tables_are_declared_by_name() -> None:
    """What does not exist is named."""
    text = "def table_options():\n    return {}\n"
    worker = models.worker(file(TABLES, text.format({"rows": {"admit_after": 3, "evict": "lru"}})))
    assert worker.tables()["rows"].admit_after == 3
    assert worker.tables()["rows"].evict == "lru"
    for options, message in (
        ({"words": {}}, "unknown table 'words'; tables are: rows"),
        ({"rows": {"ttl": 3}}, "unknown option 'ttl' of 'rows'; options are: admit_after"),
        ([], "it must return a dict of options for each table"),
    ):
        model = file(TABLES, text.format(options))
        assert message in refusal(lambda: models.worker(model))  # noqa: B023 - called at once


def other_optimizers_are_refused() -> None:
    """With a list of those that there are."""
    clip = "grad_clip=nn.ClipGradByNorm(1.0)"
    for optimizer, message in (
        ("paddle.optimizer.Lamb(0.1, parameters=parameters)", "no Lamb"),
        (
            "paddle.optimizer.SGD(paddle.optimizer.lr.NoamDecay(8, 9), parameters=parameters)",
            "StepDecay",
        ),
        (OPTIMIZERS[5], "no groups"),
        (f"paddle.optimizer.SGD(0.1, parameters=parameters, {clip})", "only by global norm"),
        ("paddle.optimizer.Adam(0.1, parameters=parameters, amsgrad=True)", "no AMSGrad"),
        (
            "paddle.optimizer.Momentum(0.1, parameters=parameters, weight_decay=0.1)",
            "weight decay only apart from the gradient",
        ),
    ):
        model = file(optimizer=optimizer)
        text = refusal(lambda: models.worker(model))  # noqa: B023 - called at once
        assert message in text
        assert "SGD, Momentum, Adagrad, Adam" in text


def what_servers_cannot_keep_is_refused() -> None:
    """Running statistics, and two tables that share their weight."""
    assert "running statistics" in refusal(lambda: models.worker(file(NORMED)))
    text = TABLES.replace(
        "self.line =",
        "self.twin = nn.Embedding(50, 4, sparse=True)\n"
        "        self.twin.weight = self.rows.weight\n        self.line =",
    )
    assert "share their weight" in refusal(lambda: models.worker(file(text)))


def parameters_of_other_models_are_refused() -> None:
    """With the name and both shapes."""
    worker = models.worker(file())
    dense = dict(worker.initial())
    dense["0.weight"] = np.zeros((6, 9), np.float32)
    text = refusal(lambda: worker.load(dense), CheckpointError)

    assert "the servers' model belongs to another model: 0.weight has shape [6, 9]" in text
    assert worker.gradients(batch(), Server(None).lookup).metrics["loss"] > 0


def a_layer_may_be_an_embedding_itself() -> None:
    """Its table has a name all the same."""
    text = """
class Rows(nn.Embedding):
    pass

def model():
    return Rows(9, 3, sparse=True)

def optimizer(parameters):
    return paddle.optimizer.SGD(0.1, parameters=[nn.Linear(1, 1).weight])
"""
    # all its parameters are at the servers: nothing dense is left, which is reported
    assert "no trainable parameters" in refusal(lambda: models.worker(file(text)))


def tables_that_a_batch_leaves_out_have_no_gradient() -> None:
    """Nothing is pushed for them."""
    text = TABLES.replace("self.rows(ids[:, 2])", "self.rows(ids[:, 2]).detach()")
    text = text.replace("self.rows(ids[:, :2]).sum(1)", "self.kept(ids[:, 1])")
    worker, server = models.worker(file(text)), Server(np.zeros((50, 4), np.float32))

    assert worker.gradients(records(), server.lookup).sparse == {}


def too_little_memory_needs_smaller_batches() -> None:
    """There are no micro-batches to split."""
    worker = models.worker(file("def feed(records):\n    raise MemoryError\n"))
    text = refusal(lambda: worker.gradients(batch(), Server(None).lookup), models.OutOfMemory)
    assert (
        "out of memory at its batch 1 of 16 records, in feed(records): lower --batch-size (" in text
    )


def frozen_embeddings_are_no_tables() -> None:
    """Nobody trains them: each trainer has its own copy."""
    text = TABLES.replace(
        "self.kept =", "self.rows.weight.stop_gradient = True\n        self.kept ="
    )
    worker = models.worker(file(text))

    assert worker.tables() == {}
    assert "rows.weight" not in worker.initial()
    assert paddle.to_tensor(1).item() == 1


FACTS = (
    gradients_are_those_of_plain_paddle,
    batches_follow_each_other,
    tables_are_the_same_in_all_trainers,
    evaluation_prediction_and_export_look_rows_up,
    rows_need_a_lookup,
    wrong_ids_are_named,
    optimizers_are_translated,
    decay_clipping_and_schedules_are_translated,
    options_of_tables_are_declared_by_name,
    other_optimizers_are_refused,
    what_servers_cannot_keep_is_refused,
    parameters_of_other_models_are_refused,
    a_layer_may_be_an_embedding_itself,
    tables_that_a_batch_leaves_out_have_no_gradient,
    too_little_memory_needs_smaller_batches,
    frozen_embeddings_are_no_tables,
)

if __name__ == "__main__":
    check(FACTS)
