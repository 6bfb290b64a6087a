"""Facts about `edl.torch.Training`; run by `test_torch.py`."""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
import torch
from edl.sync import SyncStep, parts
from edl.sync.parts import cut
from edl.sync.state_stream import SourceShare, StateSender
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep
from torch.utils.data import DataLoader, Dataset

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import (
    FEATURES,
    LIMIT_S,
    RECORDS,
    Crew,
    Trainer,
    loss_of,
    network,
    points,
    train,
)
from tests.sdk.torch.devices import DEVICE

CLOSE = 1e-5


@contextmanager
def job(**options: Any) -> Iterator[Crew]:
    """A job that ends with the fact."""
    with tempfile.TemporaryDirectory() as folder:
        crew = Crew(Path(folder), **options)
        try:
            yield crew
        finally:
            crew.close()


def is_near(ours: dict[int, float], others: dict[int, float]) -> bool:
    """Whether two loss curves are the same, but for rounding."""
    assert ours.keys() == others.keys(), (len(ours), len(others))
    return all(abs(ours[step] - others[step]) <= CLOSE * (1 + abs(others[step])) for step in ours)


@cache
def alone() -> dict[int, float]:
    """The loss curve of one trainer."""
    with job() as crew:
        crew.add().end()
        return crew.losses()


def gate(world_size: int, at: int) -> tuple[Callable[[Trainer, SyncStep], None], threading.Event]:
    """Holds the members at a step until a round with that many is announced."""
    reached = threading.Event()

    def act(trainer: Trainer, step: SyncStep) -> None:
        if step.step != at:
            return
        reached.set()
        assert trainer.training is not None
        until = threading.Event()
        for _ in range(int(LIMIT_S / 0.02)):
            if len(trainer.member.control().status()["rendezvous"]["members"]) == world_size:
                return
            until.wait(0.02)

    return act, reached


def one_member_is_as_plain_torch() -> None:
    """The same losses and parameters as a loop without EDL over the same records."""
    batches: list[Any] = []

    def body(model: Any, step: MemberStep) -> None:
        for inputs, targets in step:
            batches.append((inputs, targets))
            step.backward(loss_of(model, inputs, targets))

    with job(micro_batches=1, body=body) as crew:
        trainer = crew.add()
        trainer.end()
        ours = crew.losses()
    model = network()
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.02), {}
    for step, (inputs, targets) in enumerate(batches, 1):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        losses[step] = float(loss.detach())
    assert ours == losses
    for one, other in zip(model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(one, other)


def members_do_not_matter() -> None:
    """Three members have the curve of one, the same parameters, and each record was trained once an epoch."""
    with job() as crew:
        act, _ = gate(3, 1)
        trainers = [crew.add(act) for _ in range(3)]
        results = [trainer.end() for trainer in trainers]
        assert all(result.whole for result in results)
        assert is_near(crew.losses(), alone())
        assert crew.done() == 2 * RECORDS
        models = [
            t.model.state_dict() for t, r in zip(trainers, results, strict=True) if not r.late
        ]
        assert len(models) > 1
        for name, tensor in models[0].items():
            assert all(torch.equal(tensor, other[name]) for other in models[1:])


def large_models_are_summed_while_the_program_goes_on() -> None:
    """Sums of several buckets end at any time after the backward that has begun them."""

    def slow(model: Any, step: MemberStep) -> None:
        for inputs, targets in step:
            step.backward(loss_of(model, inputs, targets))
            pause.wait(0.01)

    pause = threading.Event()
    with job(body=slow, epochs=1) as crew:
        act, _ = gate(2, 1)
        trainers = [crew.add(act, network(width=1 << 16)) for _ in range(2)]
        assert all(trainer.end().whole for trainer in trainers)
        crew.losses()  # they agree
        assert crew.done() == RECORDS


def trainers_come_and_go() -> None:
    """A member leaves in the midst and another comes: the curve and the books stay."""
    with job() as crew:
        (first_act, reached), (second_act, again) = gate(2, 4), gate(3, 20)

        def act(trainer: Trainer, step: SyncStep) -> None:
            first_act(trainer, step)
            second_act(trainer, step)

        trainers = [crew.add(act), crew.add(act)]
        assert reached.wait(LIMIT_S)
        assert again.wait(LIMIT_S)
        trainers.append(crew.add(model=network(7)))
        assert trainers[2].began.wait(LIMIT_S)
        trainers[0].leave()
        for trainer in trainers:
            trainer.end()
        assert is_near(crew.losses(), alone())
        assert crew.done() == 2 * RECORDS


def newcomers_get_the_state_while_the_others_train() -> None:
    """In parts, of the optimizer and of running statistics, too: the curve and the models stay equal.

    Both others send, about as many parts.
    """
    sent: dict[SourceShare, int] = {}
    send_parts = StateSender.offer

    def offer(sender: StateSender) -> int:
        sent[sender.share] = send_parts(sender)
        return sent[sender.share]

    with pytest.MonkeyPatch.context() as changed, job() as crew:
        changed.setattr(parts, "MIN_BYTES", 1)
        changed.setattr(StateSender, "part_bytes", 256)
        changed.setattr(StateSender, "offer", offer)
        (first_act, _), (second_act, again) = gate(2, 1), gate(3, 8)

        def act(trainer: Trainer, step: SyncStep) -> None:
            first_act(trainer, step)
            second_act(trainer, step)

        trainers = [crew.add(act, network(0, normed=True)) for _ in range(2)]
        assert again.wait(LIMIT_S)
        trainers.append(crew.add(model=network(7, normed=True)))
        results = [trainer.end() for trainer in trainers]
        assert all(result.whole and not result.late for result in results)
        crew.losses()  # they agree
        assert trainers[2].steps, "the newcomer has made no step"
        counts = sent[SourceShare(0, 2)], sent[SourceShare(1, 2)]
        assert min(counts) > 1, "one member sent nothing"
        assert max(counts) - min(counts) <= 1
        models = [trainer.model.state_dict() for trainer in trainers]
        for name, tensor in models[0].items():
            assert all(torch.equal(tensor, other[name]) for other in models[1:]), name
        assert crew.done() == 2 * RECORDS


def what_an_optimizer_adds_later_is_sent_whole() -> None:
    """Adam has no state before its first step: parts that were named before then lack it."""
    models = [network(seed) for seed in (0, 7)]
    replicas = [
        TorchReplica(ModelSetup(model=model, optimizer=torch.optim.Adam(model.parameters(), 0.02)))
        for model in models
    ]
    groups = replicas[0].groups()
    for _ in range(2):
        loss_of(models[0], *points()[:]).backward()
        replicas[0].step(1.0)
    replicas[1].load_rest(replicas[0].rest())
    for part in cut(groups, 100):
        for names, start, stop in part:
            for name in names:
                replicas[1].write_slice(name, start, replicas[0].read_slice(name, start, stop))
    states = [replica.state() for replica in replicas]
    assert states[0].extra == states[1].extra
    assert any(name.endswith("exp_avg") for name in states[0].arrays)
    for name, array in states[0].arrays.items():
        assert np.array_equal(array, states[1].arrays[name]), name


def parameters_without_an_optimizer_and_those_with_two_names_come_in_parts() -> None:
    """A frozen model below a small adapter is most of the state; a tied layer is sent once."""
    models = [network(seed, width=FEATURES) for seed in (0, 7)]
    replicas = []
    for model in models:
        model.append(torch.nn.Linear(FEATURES, FEATURES).to(DEVICE))
        model[3].weight = model[0].weight
        model[2].requires_grad_(False)
        trained = [p for p in model.parameters() if p.requires_grad]
        replicas.append(
            TorchReplica(ModelSetup(model=model, optimizer=torch.optim.SGD(trained, 0.1)))
        )
    groups = replicas[0].groups()
    assert sum(group.size for group in groups) == sum(p.numel() for p in models[0].parameters())
    assert list(replicas[0].rest().arrays) == []
    replicas[1].load_rest(replicas[0].rest())
    for part in cut(groups, 100):
        for names, start, stop in part:
            for name in names:
                replicas[1].write_slice(name, start, replicas[0].read_slice(name, start, stop))
    for name, tensor in models[0].state_dict().items():
        assert torch.equal(tensor, models[1].state_dict()[name]), name


def a_lost_member_is_gone_without() -> None:
    """A member that ends in the midst of a step, without a word: the step is made without it."""
    with job() as crew:
        act, reached = gate(3, 3)

        def fall_silent(model: Any, step: MemberStep) -> None:
            for inputs, targets in step:
                if reached.is_set() and len(crew.trainers[2].steps) > 6:
                    raise KeyboardInterrupt
                step.backward(loss_of(model, inputs, targets))

        trainers = [crew.add(act), crew.add(act), crew.add(act, body=fall_silent)]
        assert trainers[2].error_of().startswith("KeyboardInterrupt")
        for trainer in trainers[:2]:
            trainer.end()
        assert is_near(crew.losses(), alone())
        assert crew.done() == 2 * RECORDS


def forked_children_end_without_a_word() -> None:
    """One that leaves the loop as its parent would: it has neither threads nor connections of its own."""
    with job() as crew:
        act, reached = gate(2, 3)
        ended: list[int] = []

        def fork(model: Any, step: MemberStep) -> None:
            if reached.is_set() and not ended:
                pid = os.fork()
                if not pid:
                    signal.alarm(20)
                    crew.trainers[0].training.close()  # type: ignore[union-attr]
                    os._exit(0)
                ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            train(model, step)

        trainers = [crew.add(act, body=fork), crew.add(act)]
        assert [trainer.end().redone for trainer in trainers] == [0, 0]
        assert ended == [0]
        assert is_near(crew.losses(), alone())


def running_statistics_are_shared() -> None:
    """Members have the same ones, those of forward passes of steps that were made."""
    with job() as crew:
        act, _ = gate(2, 1)
        trainers = [crew.add(act, network(0, normed=True)) for _ in range(2)]
        for trainer in trainers:
            trainer.end()
        one, other = (trainer.model.state_dict() for trainer in trainers)
        assert float(one["1.running_var"].abs().sum()) > 0
        assert all(torch.equal(one[name], other[name]) for name in one)


class Damaged(Dataset[Any]):  # type: ignore[misc]  # torch has no types here
    """Points, one of which cannot be read."""

    def __init__(self) -> None:
        self._points = points()

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        if index == 100:
            raise ValueError("image 100 is cut short")
        return self._points[index]


def unreadable_records_are_left_out() -> None:
    """Their task fails at the master with the reason, and all others are trained."""
    with job(epochs=1, data=Damaged(), task_records=32, shuffle_seed=None) as crew:
        crew.add().end()
        status = crew.master.service.status()["datasets"]["train"]
        assert status["dropped_records"] >= 1, status
        assert status["done_records"] + status["dropped_records"] == RECORDS, status


def losses_that_are_no_number_end_the_job() -> None:
    """With the micro-batch, or the step is skipped if the program says so."""

    def body(model: Any, step: MemberStep) -> None:
        for index, (inputs, targets) in enumerate(step):
            loss = loss_of(model, inputs, targets)
            step.backward(loss * float("nan") if index == 1 else loss)

    with job(body=body) as crew:
        assert "loss is nan in micro-batch 1" in crew.add().error_of()
    steps = []

    def sometimes(model: Any, step: MemberStep) -> None:
        steps.append(step)
        (body if len(steps) == 3 else train)(model, step)

    with job(body=sometimes, on_nan="skip") as crew:
        result = crew.add().end()
        assert (result.skipped, result.steps) == (1, 32)
        assert all(bool(torch.isfinite(p).all()) for p in crew.trainers[0].model.parameters())


def the_rate_can_follow_the_members() -> None:
    """With constant_batch=False each member has one micro-batch a step."""
    with job(constant_batch=False) as crew:
        crew.add().end()
        assert len(crew.trainers[0].steps) == 2 * RECORDS // 8


def other_models_are_refused() -> None:
    """In a line that names the entry; the first member goes on."""
    with job() as crew:
        first = crew.add()
        assert first.began.wait(LIMIT_S)
        text = crew.add(model=network(width=17)).error_of()
        assert text.startswith("Refused"), text
        assert "gradient" in text or "model" in text, text
        first.end()


def mistakes_of_programs_are_named() -> None:
    """Another sampler, a batch without backward, two backwards for one batch."""
    with job() as crew:
        trainer = crew.add(body=lambda _, step: list(step))
        assert "step.backward(loss) was not called" in trainer.error_of()
    with job() as crew:

        def twice(model: Any, step: MemberStep) -> None:
            for inputs, targets in step:
                step.backward(loss_of(model, inputs, targets))
                step.backward(loss_of(model, inputs, targets))

        assert "called twice" in crew.add(body=twice).error_of()
    with job() as crew:
        assert "trained 0 of 4 micro-batches" in crew.add(body=lambda *_: None).error_of()
    with job() as crew:
        trainer = crew.add()
        trainer.end()
        assert trainer.training is not None
        with pytest.raises(edl.DataError, match=r"batch_sampler=training\.sampler"):
            next(trainer.training.steps(DataLoader(points(), batch_size=4)))


FACTS = (
    one_member_is_as_plain_torch,
    members_do_not_matter,
    large_models_are_summed_while_the_program_goes_on,
    trainers_come_and_go,
    newcomers_get_the_state_while_the_others_train,
    what_an_optimizer_adds_later_is_sent_whole,
    parameters_without_an_optimizer_and_those_with_two_names_come_in_parts,
    a_lost_member_is_gone_without,
    forked_children_end_without_a_word,
    running_statistics_are_shared,
    unreadable_records_are_left_out,
    losses_that_are_no_number_end_the_job,
    the_rate_can_follow_the_members,
    other_models_are_refused,
    mistakes_of_programs_are_named,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    check(FACTS)
