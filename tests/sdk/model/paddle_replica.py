"""Facts about synchronous replicas of PaddlePaddle models; run by `test_paddle.py`."""

from typing import Any, cast

import numpy as np
import paddle
from edl import model as models
from edl.errors import CheckpointError
from edl.sync.parts import cut
from edl.sync.replica import Micro, State

from tests.sdk.model.paddle_facts import check
from tests.sdk.model.paddle_models import NORMED, OPTIMIZERS, Plain, batch, far, file, part, refusal

SHARES = {
    1: ((0, 1, 2, 3),),
    2: ((0, 1), (2, 3)),
    3: ((0, 1), (2,), (3,)),
    4: ((0,), (1,), (2,), (3,)),
}
"""Members -> micro-batches of each."""


def together(members: list[Any], step: int, *, scale: float = 1.0) -> float:
    """One step of four micro-batches, shared by members as the engine does it; its mean loss."""
    records, loss = batch(16, step), 0.0
    for member, share in zip(members, SHARES[len(members)], strict=True):
        for index in share:
            micro = Micro(step, index, 1000 * step + index)
            metrics = member.backward(part(records, 4 * index, 4 * index + 4), 0.25, micro)
            loss += 0.25 * metrics["loss"]
    if len(members) > 1:
        summed = np.zeros(members[0].size, np.float32)
        for member in members:
            out = np.empty(member.size, np.float32)
            member.read_gradient(out)
            summed += out
        for member in members:
            member.write_gradient(summed)
    for member in members:
        member.step(scale)
    return loss


def a_step_is_bitwise_that_of_plain_paddle() -> None:
    """With one trainer and one micro-batch: losses and parameters, for all optimizers."""
    for optimizer in OPTIMIZERS:
        model = file(NORMED, optimizer=optimizer)
        replica, plain = models.replica(model, seed=3), Plain(model, 3)
        for step in range(6):
            records = batch(16, step)
            loss = replica.backward(records, 1.0, Micro(step, 0, 50 + step))["loss"]
            replica.step(1.0)
            assert loss == plain.gradient(records, 50 + step), optimizer
            plain.step()
        assert far(replica.parameters(), plain.arrays()) < 1e-7, optimizer


def micro_batches_add_up_to_the_batch() -> None:
    """Four of them have the gradient of all records."""
    model = file()
    replica, plain = models.replica(model, seed=3), Plain(model, 3)
    for step in range(3):
        together([replica], step)
        plain.gradient(batch(16, step), 0)
        plain.step()
    assert far(replica.parameters(), plain.arrays()) < 1e-6


def members_do_not_matter() -> None:
    """Two, three or four share a step: all end bit-identical, and as a single one except for rounding.

    With batch normalization and dropout.
    """
    for optimizer in OPTIMIZERS:
        model = file(NORMED, optimizer=optimizer)
        alone = models.replica(model, seed=3)
        expected = [together([alone], step) for step in range(4)]
        for count in (2, 3, 4):
            members = [models.replica(model, seed=3) for _ in range(count)]
            losses = [together(members, step) for step in range(4)]
            states = [member.state() for member in members]
            assert np.allclose(losses, expected, atol=1e-5), optimizer
            assert far(states[0].arrays, states[-1].arrays) == 0.0
            assert states[0].extra == states[-1].extra
            assert far(states[0].arrays, alone.state().arrays) < 1e-4, optimizer


def newcomers_go_on_like_the_others() -> None:
    """A state taken over before the first step, or later, by a fresh one or one that trained."""
    for optimizer in OPTIMIZERS:
        model = file(NORMED, optimizer=optimizer)
        for before, after in ((0, 0), (2, 0), (2, 3), (0, 2)):
            old, new = models.replica(model, seed=3), models.replica(model, seed=9)
            for step in range(before):
                together([old], step)
            for step in range(after):
                together([new], 70 + step)
            found_state = old.state()
            arrays = {name: np.array(array) for name, array in found_state.arrays.items()}
            new.load(State(arrays, found_state.extra))
            for step in range(3):
                together([old], step)
                together([new], step)
            assert far(old.state().arrays, new.state().arrays) == 0.0, optimizer
            assert old.state().extra == new.state().extra


def parts_of_different_steps_make_one_state() -> None:
    """A newcomer applies each step to what it has."""
    for optimizer in OPTIMIZERS:
        model = file(NORMED, optimizer=optimizer)
        old, new = (cast("Any", models.replica(model, seed=seed)) for seed in (3, 9))
        together([old], 0)
        gradient = np.empty(old.size, np.float32)
        for step, pieces in enumerate(cut(old.groups(), 60), 1):
            old.backward(batch(16, 1), 1.0, Micro(step, 0, step))
            if step == 1:
                new.load_rest(old.rest())
            for names, start, stop in pieces:
                for name in names:
                    new.write_slice(name, start, old.read_slice(name, start, stop))
            old.read_gradient(gradient)
            for replica in (old, new):
                replica.write_gradient(gradient)
                replica.step(1.0)
        assert far(old.state().arrays, new.state().arrays) == 0.0, (optimizer, step)
        assert old.state().extra == new.state().extra


def what_depends_on_norms_is_not_cut() -> None:
    """Lamb's rate of a parameter depends on all of its elements."""
    lamb = models.replica(file(optimizer="paddle.optimizer.Lamb(0.01, parameters=parameters)"))
    assert cast("Any", lamb).groups() == []
    adam: Any = models.replica(file(optimizer=OPTIMIZERS[2]))
    assert all("pow" not in name for group in adam.groups() for name in group.names)
    assert any("pow" in name for name in adam.rest().arrays)


def states_are_complete() -> None:
    """Parameters, statistics, momenta and the place in the schedule."""
    state = models.replica(file(NORMED, optimizer=OPTIMIZERS[4])).state()

    assert "model/0.weight" in state.arrays
    assert "model/1._variance" in state.arrays
    assert "optimizer/moment2/4.bias" in state.arrays
    assert state.extra == {"scheduler": {"last_epoch": 0, "last_lr": 0.01}}


def states_of_other_models_are_refused() -> None:
    """The text names the array, and nothing is changed."""
    model = file()
    replica, before = models.replica(model), models.replica(model).state()
    wide = "def model():\n    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))\n"
    deep = "def model():\n    return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))\n"
    adam, scheduled = file(optimizer=OPTIMIZERS[2]), file(optimizer=OPTIMIZERS[4])

    def load(other: models.Model) -> str:
        return refusal(lambda: replica.load(models.replica(other).state()), CheckpointError)

    assert "model/0.weight has shape [6, 9] instead of [6, 8]" in load(file(wide))
    assert "model/2.weight is missing" in load(file(deep))
    assert "unexpected array optimizer/moment1/0.weight" in load(adam)
    assert far(replica.state().arrays, before.arrays) == 0.0
    steady = models.replica(adam)
    text = refusal(lambda: steady.load(models.replica(scheduled).state()), CheckpointError)
    assert "learning-rate schedule" in text


def a_step_that_is_dropped_leaves_nothing() -> None:
    """Neither in gradients nor in statistics."""
    model = file(NORMED)
    replica, other = models.replica(model, seed=3), models.replica(model, seed=3)
    replica.backward(batch(16, 9), 1.0, Micro(0, 0, 1))
    replica.clear()
    for member in (replica, other):
        together([member], 0)

    assert far(replica.state().arrays, other.state().arrays) == 0.0


def the_learning_rate_can_be_scaled() -> None:
    """For one step, with and without a schedule, which continues."""
    for optimizer in (OPTIMIZERS[0], OPTIMIZERS[4].replace("Adam", "SGD")):
        model = file(optimizer=optimizer)
        replica, plain = models.replica(model, seed=3), Plain(model, 3)
        for scale in (0.5, 1.0, 0.25):
            before, plain_before = replica.parameters(), plain.arrays()
            replica.backward(batch(), 1.0, Micro(0, 0, 1))
            replica.step(scale)
            plain.gradient(batch(), 1)
            plain.step()
            now, plain_now = replica.parameters(), plain.arrays()
            for name, array in now.items():
                plain.layer.state_dict()[name].set_value(array)
                moved, whole = array - before[name], plain_now[name] - plain_before[name]
                assert np.allclose(moved, scale * whole, atol=1e-6), (optimizer, scale)


def parameters_out_of_reach_have_zeros() -> None:
    """And those whose gradient lies across in memory are right."""
    text = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.unused = nn.Linear(6, 3), nn.Linear(2, 2)
        self.across = self.create_parameter([3, 3])

    def forward(self, x):
        return paddle.matmul(self.first(x), self.across.t())

def model():
    return Net()
"""
    model = file(text, optimizer=OPTIMIZERS[2])
    first, two = (models.replica(model, seed=3) for _ in range(2))
    plain = Plain(model, 3)
    out = np.full(first.size, 7, np.float32)
    first.backward(batch(), 1.0, Micro(0, 0, 1))
    plain.gradient(batch(), 1)
    first.read_gradient(out)
    grads = [p.grad for p in plain.layer.parameters()]
    sizes = [int(np.prod(p.shape)) for p in plain.layer.parameters()]
    flat = [
        np.zeros(size) if grad is None else grad.numpy().reshape(-1)
        for grad, size in zip(grads, sizes, strict=True)
    ]
    assert np.array_equal(out, np.concatenate(flat))
    two.write_gradient(out)
    for member in (first, two):
        member.step(1.0)
    assert far(first.state().arrays, two.state().arrays) == 0.0


def sparse_embeddings_are_dense_here() -> None:
    """Their gradient is exchanged like all others."""
    text = """
def model():
    return nn.Sequential(nn.Embedding(9, 6, sparse=True), nn.Flatten(), nn.Linear(12, 3))
"""
    replica = models.replica(file(text))
    records = {"inputs": np.array([[1, 2], [2, 8]]), "labels": np.array([0, 1])}
    replica.backward(records, 1.0, Micro(0, 0, 0))
    out = np.empty(replica.size, np.float32)
    replica.read_gradient(out)
    used = np.abs(out[: 9 * 6].reshape(9, 6)).sum(1) > 0

    assert used.tolist() == [False, True, True, False, False, False, False, False, True]


def other_sparse_gradients_are_refused() -> None:
    """Where a layer is not one of `paddle.nn.Embedding`."""
    text = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rows = self.create_parameter([9, 3])

    def forward(self, x):
        return nn.functional.embedding(x, self.rows, sparse=True)

def model():
    return Net()
"""
    replica = models.replica(file(text))
    records = {"inputs": np.array([1, 2]), "labels": np.array([0, 1])}
    text = refusal(lambda: replica.backward(records, 1.0, Micro(0, 0, 0)))
    assert "the gradient of 'rows' is sparse" in text


def evaluations_leave_no_trace() -> None:
    """Not in statistics, and dropout is off."""
    model = file(
        NORMED,
        "def metrics():\n    return {'first': lambda outputs, labels: outputs[0, 0]}\n",
    )
    replica = models.replica(model)
    before = replica.state()
    first, second = (models.evaluate(replica, batch()) for _ in range(2))

    assert first == second
    assert first.keys() == {"loss", "first"}
    assert far(replica.state().arrays, before.arrays) == 0.0
    assert replica.layer.training  # type: ignore[attr-defined]


def inputs_may_be_several() -> None:
    """Tuples are arguments and dicts are keywords; float64 becomes float32."""
    net = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 3)

    def forward(self, left, right):
        return self.line(left) - self.line(right)

def model():
    return Net()
"""
    tuples = (
        "def feed(records):\n    x = records['inputs']\n    return (x, x * 2), records['labels']\n"
    )
    dicts = tuples.replace("(x, x * 2)", "{'right': x * 2, 'left': x}")
    records = batch()
    records["inputs"] = records["inputs"].astype(np.float64)
    metrics = [
        models.evaluate(models.replica(file(net, feed)), records) for feed in (tuples, dicts)
    ]

    assert metrics[0] == metrics[1]


def random_numbers_of_feeds_follow_the_micro_batch() -> None:
    """Python's, numpy's and PaddlePaddle's."""
    text = """
import random
import numpy as np

def feed(records):
    moved = records['inputs'] + np.random.rand() + random.random()
    return paddle.to_tensor(moved.astype('float32')) + paddle.rand([1]), records['labels']
"""
    replica = models.replica(file(text))
    first, second, other = (
        replica.backward(batch(), 1.0, Micro(0, 0, seed))["loss"] for seed in (5, 5, 6)
    )
    assert first == second != other


def buffers_are_exchanged_and_constants_are_not() -> None:
    """A mean that the model keeps by itself is the same in all members."""
    text = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 3)
        self.register_buffer("seen", paddle.zeros([6]))
        self.register_buffer("count", paddle.zeros([1], "int64"))
        self.register_buffer("constant", paddle.ones([6]), persistable=False)

    def forward(self, x):
        self.seen.set_value(0.5 * self.seen + 0.5 * x.mean(0))
        return self.line(x * self.constant)

def model():
    return Net()
"""
    members = [models.replica(file(text), seed=3) for _ in range(2)]
    expected = np.zeros(6)
    for step in range(2):
        together(members, step)
        expected = 0.5 * expected + 0.5 * batch(16, step)["inputs"].mean(0)
    states = [member.state().arrays for member in members]

    assert members[0].size == 6 * 3 + 3 + 6
    assert far(states[0], states[1]) == 0.0
    assert np.allclose(states[0]["model/seen"], expected, atol=1e-6)
    assert "model/constant" not in states[0]


def frozen_parameters_stay_out() -> None:
    """They are in the state, and not in the gradient."""
    text = """
def model():
    net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    for one in net[0].parameters():
        one.stop_gradient = True
    return net
"""
    replica = models.replica(file(text, optimizer=OPTIMIZERS[2]))
    assert replica.size == 8 * 3 + 3
    assert "model/0.weight" in replica.state().arrays
    together([replica], 0)
    assert not paddle.isnan(paddle.to_tensor(replica.parameters()["0.weight"])).any()


FACTS = (
    a_step_is_bitwise_that_of_plain_paddle,
    micro_batches_add_up_to_the_batch,
    members_do_not_matter,
    newcomers_go_on_like_the_others,
    parts_of_different_steps_make_one_state,
    what_depends_on_norms_is_not_cut,
    states_are_complete,
    states_of_other_models_are_refused,
    a_step_that_is_dropped_leaves_nothing,
    the_learning_rate_can_be_scaled,
    parameters_out_of_reach_have_zeros,
    sparse_embeddings_are_dense_here,
    other_sparse_gradients_are_refused,
    evaluations_leave_no_trace,
    inputs_may_be_several,
    random_numbers_of_feeds_follow_the_micro_batch,
    buffers_are_exchanged_and_constants_are_not,
    frozen_parameters_stay_out,
)

if __name__ == "__main__":
    check(FACTS)
