"""Facts about semi-synchronous training in torch; run by `test_torch.py`."""

import tempfile
from functools import partial
from typing import Any

import edl
import pytest
import torch
from edl.sync import SyncStep
from edl.torch.local_steps import LocalReplica
from edl.torch.state.replica import ModelSetup
from edl.torch.step import MemberStep
from edl.torch.training import Training

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import LIMIT_S, RECORDS, Trainer, loss_of, network, train
from tests.sdk.torch.torch_training import gate, job

STEPS, BATCH = 4, 8
local_job = partial(job, local_steps=STEPS, batch_size=BATCH, micro_batches=None)


def averaging(model: Any) -> torch.optim.Optimizer:
    """The outer optimizer of LocalSGD: members take the mean of their parameters."""
    return torch.optim.SGD(model.parameters(), 1.0)


def one_member_that_averages_is_as_plain_torch() -> None:
    """An outer step of its own mean changes nothing: the parameters are those of a plain loop."""
    batches: list[Any] = []

    def body(model: Any, step: MemberStep) -> None:
        for inputs, targets in step:
            batches.append((inputs, targets))
            step.backward(loss_of(model, inputs, targets))

    start = network()
    with local_job(body=body) as crew:
        trainer = crew.add(model=start, outer=averaging(start))
        assert trainer.end().steps == 2 * RECORDS // (STEPS * BATCH)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        optimizer.step()
    assert len(batches) == 2 * RECORDS // BATCH
    for one, other in zip(model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def outer_steps_are_of_the_mean_change() -> None:
    """With Nesterov's momentum on what two members have changed, weighted by their records."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replica = LocalReplica(ModelSetup(model=model, optimizer=optimizer), outer=None)
    plain = {name: p.detach().clone() for name, p in model.named_parameters()}
    momentum = {name: torch.zeros_like(p) for name, p in plain.items()}
    for step in range(3):
        replica.begin_step()
        loss_of(model, torch.full((4, 8), 1.0 + step), torch.ones(4)).backward()
        assert replica.local_step()
        change = {name: plain[name] - p.detach() for name, p in model.named_parameters()}
        replica.write_change(0.25)
        replica.step(1.0)
        for name, values in plain.items():
            momentum[name] = 0.9 * momentum[name] + 0.25 * change[name]
            plain[name] = values - 0.7 * (0.25 * change[name] + 0.9 * momentum[name])
        for name, parameter in model.named_parameters():
            assert torch.allclose(parameter, plain[name], atol=1e-6), (step, name)


def members_end_with_the_same_parameters() -> None:
    """Three members train apart and together; the loss falls, and each record is trained once an epoch."""
    with local_job(epochs=4) as crew:
        act, _ = gate(3, 1)
        trainers = [crew.add(act) for _ in range(3)]
        results = [trainer.end() for trainer in trainers]
        assert crew.done() == 4 * RECORDS
        losses = crew.losses()
        assert losses[max(losses)] < 0.5 * losses[1]
        whole = [t for t, r in zip(trainers, results, strict=True) if not r.late]
        assert len(whole) > 1
        first, *others = (trainer.model.state_dict() for trainer in whole)
        assert all(torch.equal(first[name], other[name]) for other in others for name in first)


def members_come_and_go_between_outer_steps() -> None:
    """One leaves and one comes, which takes model and momentum over; the books stay exact."""
    with local_job(epochs=6) as crew:
        (first_act, reached), (second_act, again) = gate(2, 2), gate(3, 6)

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
        crew.losses()
        assert crew.done() == 6 * RECORDS


def a_lost_member_costs_one_outer_step() -> None:
    """The others go back to where it began, and make it again without the member."""
    with local_job(epochs=6) as crew:
        act, reached = gate(3, 2)

        def fall_silent(model: Any, step: MemberStep) -> None:
            for number, (inputs, targets) in enumerate(step):
                if reached.is_set() and number == 2 and len(crew.trainers[2].steps) > 4:
                    raise KeyboardInterrupt
                step.backward(loss_of(model, inputs, targets))

        trainers = [crew.add(act), crew.add(act), crew.add(act, body=fall_silent)]
        assert trainers[2].error_of().startswith("KeyboardInterrupt")
        results = [trainer.end() for trainer in trainers[:2]]
        assert all(result.redone == 1 for result in results)
        assert crew.done() == 6 * RECORDS
        crew.losses()


def steps_that_are_dropped_leave_no_trace() -> None:
    """Parameters, schedule and rate are those of before; bad gradients never reach the optimizer."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    replica = LocalReplica(
        ModelSetup(model=model, optimizer=optimizer, scheduler=schedule), outer=None
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    replica.begin_step()
    for _ in range(3):
        loss_of(model, torch.ones(4, 8), torch.ones(4)).backward()
        assert replica.local_step()
    (loss_of(model, torch.ones(4, 8), torch.ones(4)) * float("inf")).backward()
    assert not replica.local_step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    replica.clear()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert schedule.last_epoch == 0
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
    assert all(bool(torch.isfinite(s["momentum_buffer"]).all()) for s in optimizer.state.values())


def schedules_of_momentum_go_back_with_a_dropped_step() -> None:
    """OneCycleLR and CyclicLR change more than the rate."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 9)
    replica = LocalReplica(
        ModelSetup(model=model, optimizer=optimizer, scheduler=schedule), outer=None
    )
    (group,) = optimizer.param_groups
    before = group["lr"], group["momentum"]
    replica.begin_step()
    loss_of(model, torch.ones(4, 8), torch.ones(4)).backward()
    assert replica.local_step()
    assert (group["lr"], group["momentum"]) != before
    replica.clear()
    assert (group["lr"], group["momentum"]) == before


def losses_that_are_no_number_leave_an_outer_step_out() -> None:
    """If the program says so; the model goes on from before it."""
    steps = []

    def sometimes(model: Any, step: MemberStep) -> None:
        steps.append(step)
        for inputs, targets in step:
            loss = loss_of(model, inputs, targets)
            step.backward(loss * float("nan") if len(steps) == 3 else loss)

    with local_job(body=sometimes, on_nan="skip") as crew:
        result = crew.add().end()
        assert result.skipped == 1
        assert all(bool(torch.isfinite(p).all()) for p in crew.trainers[0].model.parameters())
    steps.clear()
    with local_job(body=sometimes) as crew:
        assert "loss is nan in micro-batch" in crew.add().error_of()


def states_have_what_members_share() -> None:
    """The outer momentum and the rate, and not what a member's own optimizer has gathered."""
    replicas = []
    for seed in (0, 7):
        model = network(seed)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        replicas.append(LocalReplica(ModelSetup(model=model, optimizer=optimizer), outer=None))
    one, other = replicas
    for _ in range(2):
        one.begin_step()
        loss_of(one.model, torch.ones(4, 8), torch.ones(4)).backward()
        assert one.local_step()
        one.write_change(1.0)
        one.step(1.0)
    state = one.state()
    kinds = {name.split("/")[0] for name in state.arrays}
    assert kinds == {"model", "outer"}
    state.extra["own"][0]["lr"] = 0.05
    other.load(state)
    after = other.state()
    assert after.arrays.keys() == state.arrays.keys()
    assert all(bool((after.arrays[name] == state.arrays[name]).all()) for name in state.arrays)
    assert after.extra["own"][0]["lr"] == 0.05


def training_continues_from_a_checkpoint() -> None:
    """Model, outer momentum and data go back together, so each record is in the model once."""
    with (
        tempfile.TemporaryDirectory() as folder,
        local_job(checkpoints=folder, checkpoint_steps=5) as crew,
    ):

        def leave(trainer: Trainer, step: SyncStep) -> None:
            if step.step == 10:
                trainer.leave()

        assert not crew.add(leave).end().whole
        assert edl.latest_checkpoint(folder) is not None
        second = crew.add(model=network(7))
        assert second.end().steps == 2 * RECORDS // (STEPS * BATCH)
        assert second.steps[0].step > 10
        assert crew.done() == 2 * RECORDS


def fewer_bytes_are_exchanged() -> None:
    """About a share of one in `local_steps` of what each gradient would take."""
    exchanged = []
    for options in ({"micro_batches": 2, "batch_size": 2 * BATCH}, {}):
        with local_job(epochs=4, **({"local_steps": 0, **options} if options else {})) as crew:
            act, _ = gate(2, 1)
            trainers = [crew.add(act, network(width=512)) for _ in range(2)]
            for trainer in trainers:
                trainer.end()
            assert trainers[0].training is not None
            exchanged.append(trainers[0].training.exchanged_bytes)
    assert exchanged[1] < exchanged[0] / STEPS * 1.5, exchanged


def programs_that_contradict_themselves_are_refused() -> None:
    """Before anything is sent, with what to leave out; members with another H are refused by the master."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for options, message in (
        ({"local_steps": -1}, "local_steps is -1"),
        ({"local_steps": 2.5}, r"local_steps is 2\.5"),
        ({"outer": optimizer}, "outer is given without local_steps"),
        ({"local_steps": 4, "micro_batches": 8}, "leave micro_batches and constant_batch out"),
        ({"local_steps": 4, "constant_batch": False}, "leave micro_batches and constant_batch out"),
        (
            {"local_steps": 4, "outer": averaging(network())},
            "outer optimizer has parameters that are not in the model",
        ),
    ):
        with pytest.raises(edl.DataError, match=message):
            Training(model, optimizer, records=10, batch_size=2, **options)
    with local_job(body=train) as crew:
        act, _ = gate(2, 1)
        first, _ = crew.add(act), None
        assert first.began.wait(LIMIT_S)
        text = crew.add(local_steps=STEPS + 1).error_of()
        assert text.startswith("Refused"), text
        assert "outer" in text, text
        crew.add()
        first.end()


FACTS = (
    one_member_that_averages_is_as_plain_torch,
    outer_steps_are_of_the_mean_change,
    members_end_with_the_same_parameters,
    members_come_and_go_between_outer_steps,
    a_lost_member_costs_one_outer_step,
    steps_that_are_dropped_leave_no_trace,
    schedules_of_momentum_go_back_with_a_dropped_step,
    losses_that_are_no_number_leave_an_outer_step_out,
    states_have_what_members_share,
    training_continues_from_a_checkpoint,
    fewer_bytes_are_exchanged,
    programs_that_contradict_themselves_are_refused,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    check(FACTS)
