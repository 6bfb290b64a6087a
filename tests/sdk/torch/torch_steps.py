"""Facts about single steps of a loop in torch, without a job; run by `test_torch.py`."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from edl.errors import CheckpointError, DataError, RoundOver
from edl.master.protocol import Lease
from edl.sync.plans import Assignment, Plan, Span
from edl.sync.replica import Micro
from edl.torch.batches import LoaderBatches
from edl.torch.buckets import GradientBuckets
from edl.torch.local_steps import LocalReplica
from edl.torch.state.host_copies import HostCopies
from edl.torch.state.norm_statistics import NormStatistics
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep, StepCalls, seed_torch

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import FEATURES, network
from tests.sdk.torch.devices import DEVICE


def step_of(micro_batches: int, *, before_last: Any = lambda: None, **calls: Any) -> MemberStep:
    """A step of which one member has so many micro-batches of eight records."""
    lease = Lease("t", 1, "training", "train", 0, 0, 8 * micro_batches, None, 60.0)
    assignment: Assignment = [(i, (Span(lease, 8 * i, 8),)) for i in range(micro_batches)]
    plan = Plan("plan", tuple(span for _, spans in assignment for span in spans))
    batches = (torch.ones(8, FEATURES, device=DEVICE) for _ in range(micro_batches))
    sources = {"next_batch": batches.__next__, "micro": lambda index: Micro(0, index, index)}
    return MemberStep(plan, assignment, StepCalls(before_last=before_last, **(sources | calls)))


def a_step_that_cannot_count_is_left() -> None:
    """Once a member is lost there is no further micro-batch, and no backward of the one under way."""
    model = network()
    batches: list[torch.Tensor] = []
    gradients: list[list[torch.Tensor]] = []
    step = step_of(4, is_over=lambda: len(batches) > 1)
    for inputs in step:
        batches.append(inputs)
        step.backward(model(inputs).square().mean())
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert len(gradients[-1]) == 4
    assert step.is_cut_short
    before, after = gradients
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def a_backward_whose_sums_cannot_begin_ends() -> None:
    """Where sums begin while it runs; the program sees a step without more micro-batches."""
    model = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(6))).to(DEVICE)
    buckets = GradientBuckets(model.named_parameters(), 4)
    reached: list[torch.Tensor] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reached.append)

    def begin_sum(_: Any) -> Any:
        raise RoundOver("a member is lost")

    for may_end, count in ((True, 2), (False, 12)):
        reached.clear()
        buckets.clear()
        step = step_of(1, before_last=lambda: buckets.begin(begin_sum, may_end=may_end))  # noqa: B023
        for _ in step:
            step.backward(model(torch.ones(2, 600, device=DEVICE)).square().mean())
        assert step.is_cut_short == may_end
        assert len(reached) <= count, len(reached)
    buckets.close()


def gradients_that_are_not_finite_are_seen() -> None:
    """Of any type: of complex parameters also where only an imaginary part is not."""
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        ones = (torch.ones(3, device=DEVICE), torch.ones(3, dtype=kind, device=DEVICE))
        model = torch.nn.ParameterList(ones)
        buckets = GradientBuckets(model.named_parameters(), 4)
        bad = complex(0, float("nan")) if kind.is_complex else float("inf")
        assert buckets.is_finite()
        model[1].grad[1] = bad
        assert not buckets.is_finite(), kind
        buckets.close()


def transforms_draw_what_the_micro_batch_says() -> None:
    """Whatever this member has computed before, and whether its loader begins anew."""

    class Noise:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(2)

    drawn = []
    for micro_batches, first in ((2, 0), (1, 1)):
        sampler: Any = [[0, 1], [2, 3]][:micro_batches]
        loader = torch.utils.data.DataLoader(Noise(), batch_sampler=sampler)
        batches = LoaderBatches(loader, sampler)
        step = step_of(
            micro_batches, next_batch=batches.next, micro=lambda i, n=first: Micro(0, i, n + i)
        )
        for inputs in step:
            torch.rand(3 + first)
            step.backward((inputs * torch.ones(2, requires_grad=True)).mean())
            drawn.append(inputs)
    _, second, alone = drawn
    assert torch.equal(second, alone)


def random_numbers_are_seeded_as_by_torch() -> None:
    """Without the stack of each call, which torch keeps as text where CUDA is not in use."""
    torch.manual_seed(1 << 40)
    expected = torch.rand(3)
    seed_torch(1 << 40)
    assert torch.equal(torch.rand(3), expected)


def random_numbers_of_a_device_follow_the_micro_batch() -> None:
    """Those of dropout on a GPU, too, which come from a generator of its own."""
    drawn = []
    for before in (0, 5):
        torch.rand(before, device=DEVICE)
        seed_torch(3)
        drawn.append(torch.rand(4, device=DEVICE).cpu())
    assert torch.equal(*drawn)


def running_statistics_are_summed_where_they_are() -> None:
    """One tensor on the device of the model, as a copy to the host would wait for each buffer."""
    statistics = NormStatistics(network(normed=True))
    assert statistics.flat.device.type == DEVICE.type
    statistics.write(0.5)
    statistics.flat *= 2.0
    statistics.read()


def copies_on_the_host_are_complete_when_they_are_read() -> None:
    """A device makes them in the order of its operations, and later than the call returns."""
    tensors = {"one": torch.ones(3, device=DEVICE), "two": torch.full((2, 2), 2.0, device=DEVICE)}
    copies = HostCopies(tensors)
    for tensor in tensors.values():
        tensor.zero_()
    arrived = {name: copy.tolist() for name, copy in copies.wait().items()}
    assert arrived == {"one": [1.0] * 3, "two": [[2.0] * 2] * 2}


def losses_without_a_gradient_are_refused() -> None:
    """A vector, a number, and what does not depend on the model."""
    model = network()
    losses = {
        "a tensor of shape [8, 1]": model,
        "a float": lambda inputs: model(inputs).mean().item(),
        "does not depend on": lambda inputs: model(inputs).mean().detach(),
    }
    for text, loss_of in losses.items():
        step = step_of(1)
        inputs = next(iter(step))
        with pytest.raises(DataError, match=re.escape(text)):
            step.backward(loss_of(inputs))


def changed_gradients_are_refused() -> None:
    """Of a member's part of a step: clipping in the loop. Dropping them changes nothing."""
    model = network()
    buckets = GradientBuckets(model.named_parameters(), 4)
    acts: tuple[Callable[[], object], ...] = (
        lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        lambda: model.zero_grad(set_to_none=False),
    )
    for act in acts:
        buckets.clear()
        step = step_of(2, versions=buckets.versions)
        model.zero_grad(set_to_none=False)  # before the first part they are zeros anyway
        parts = iter(step)
        step.backward(model(next(parts)).square().mean())
        act()
        loss = model(next(parts)).square().mean()
        with pytest.raises(DataError, match="clip in before_step="):
            step.backward(loss)
        with pytest.raises(DataError, match="clip in before_step="):
            step.end()
    gradients = []
    for drops in (False, True):
        buckets.clear()
        step = step_of(2, versions=buckets.versions)
        for inputs in step:
            step.backward(model(inputs).square().mean())
            if drops:
                model.zero_grad()
        assert step.end() is None
        gradients.append([view.clone() for _, view in buckets.views()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    buckets.close()


def sums_that_end_are_no_change_of_the_loop() -> None:
    """Gloo copies the sum of a gradient on a GPU back on its own thread, perhaps before the step has ended."""
    model = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(2))).to(DEVICE)
    buckets = GradientBuckets(model.named_parameters(), 4)
    sums: list[torch.Tensor] = []
    step = step_of(1, before_last=lambda: buckets.begin(sums.append), versions=buckets.versions)
    for _ in step:
        step.backward(model(torch.ones(2, 600, device=DEVICE)).square().mean())
        assert len(sums) == 1
        sums[0].mul_(2.0)
    assert step.end() is None
    buckets.close()


def dropped_gradients_are_applied() -> None:
    """Of a member whose loop calls `zero_grad`: after its part of a step, or without a part."""
    kinds: tuple[Callable[..., TorchReplica], ...] = (
        TorchReplica,
        partial(LocalReplica, outer=None),
    )
    for new_replica in kinds:
        moved: list[Any] = []
        gradient: Any = None
        for has_part, drops in ((True, False), (True, True), (False, True)):
            model = network()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            replica = new_replica(ModelSetup(model=model, optimizer=optimizer))
            replica.begin_step()
            if has_part:
                model(torch.ones(8, FEATURES, device=DEVICE)).square().mean().backward()
            if drops:
                model.zero_grad()
            (flat,) = replica.buckets.gradients()
            gradient = flat.clone() if gradient is None else gradient
            flat.copy_(gradient)  # where this member has no part, the sum is the part of others
            replica.step(1.0)
            moved.append(torch.nn.utils.parameters_to_vector(model.parameters()))
        assert not torch.equal(
            moved[0], torch.nn.utils.parameters_to_vector(network().parameters())
        )
        assert torch.equal(moved[1], moved[0])
        assert torch.equal(moved[2], moved[0])


def steps_of_the_program_s_own_are_refused() -> None:
    """While it computes its part of a step; before and after it may do what it likes."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for replica in (
        TorchReplica(ModelSetup(model=model, optimizer=optimizer)),
        LocalReplica(ModelSetup(model=model, optimizer=optimizer), outer=None),
    ):
        optimizer.step()
        replica.begin_step()
        with pytest.raises(DataError, match=r"the loop calls optimizer\.step\(\)"):
            optimizer.step()
        if isinstance(replica, LocalReplica):
            assert replica.local_step()
            with pytest.raises(DataError, match=r"the loop calls optimizer\.step\(\)"):
                optimizer.step()
        replica.step(1.0)
        optimizer.step()
        replica.begin_step()
        replica.clear()
        optimizer.step()
        replica.begin_step()
        replica.close()
        optimizer.step()


def models_that_change_are_refused() -> None:
    """Parameters that are trained only later, or no longer, and another type."""
    model = network()
    model[0].bias.requires_grad_(False)
    replica = TorchReplica(
        ModelSetup(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    )
    replica.begin_step()
    model[0].bias.requires_grad_(True)
    with pytest.raises(DataError, match=r"0\.bias was frozen"):
        replica.begin_step()
    model[0].bias.requires_grad_(False)
    model[0].weight.requires_grad_(False)
    with pytest.raises(DataError, match=r"0\.weight was trained when .*, and is frozen now"):
        replica.begin_step()
    model[0].weight.requires_grad_(True)
    replica.begin_step()
    model.double().float()
    with pytest.raises(DataError, match="converted to another type"):
        replica.begin_step()


def what_is_frozen_is_in_the_signature() -> None:
    """Members that train others of the same size would sum what does not belong together."""
    signatures = set()
    for frozen in (None, 0, 1):
        model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
        if frozen is not None:
            model[frozen].requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        signatures.add(TorchReplica(ModelSetup(model=model, optimizer=optimizer)).signature())
    assert len(signatures) == 3


def newcomers_undo_a_step_as_the_others_do() -> None:
    """Running statistics of half precision, too, for which numpy has no type."""
    replicas = []
    for seed in (0, 7):
        model = network(seed, normed=True).bfloat16()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        replicas.append(TorchReplica(ModelSetup(model=model, optimizer=optimizer)))
    source, newcomer = replicas
    source.begin_step()
    before = [buffer.clone() for buffer in source.model.buffers()]
    source.model(torch.ones(8, FEATURES, dtype=torch.bfloat16, device=DEVICE))
    newcomer.begin_step()
    source.groups()
    newcomer.load_rest(source.rest())
    for replica in replicas:
        replica.clear()
        for buffer, expected in zip(replica.model.buffers(), before, strict=True):
            assert torch.equal(buffer, expected), buffer


def settings_that_cannot_be_sent_are_refused() -> None:
    """A rate as a tensor: before training, and not once another trainer comes."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(0.1))
    with pytest.raises(CheckpointError, match="not a number, text or list: Object of type Tensor"):
        TorchReplica(ModelSetup(model=model, optimizer=optimizer)).signature()


def other_kinds_of_arguments_are_refused() -> None:
    """A function or a layer with a state of its own as the model, several optimizers, and one of sparse gradients."""
    model = network()

    class Odd(torch.nn.Linear):  # type: ignore[misc]  # torch has no types here
        def get_extra_state(self) -> dict[str, int]:
            return {"calls": 1}

    several = [torch.optim.SGD(layer.parameters(), 0.1) for layer in (model[0], model[2])]
    for trained, optimizer, text in (
        (model.forward, several[0], "give a torch.nn.Module"),
        (torch.nn.Sequential(Odd(2, 2)), several[0], r"0\._extra_state of the .* is a dict"),
        (model, several, "the optimizer is a list: give one"),
        (model, torch.optim.SparseAdam(model.parameters()), "only takes sparse gradients"),
    ):
        with pytest.raises(DataError, match=text):
            TorchReplica(ModelSetup(model=trained, optimizer=optimizer))


FACTS = (
    a_step_that_cannot_count_is_left,
    a_backward_whose_sums_cannot_begin_ends,
    gradients_that_are_not_finite_are_seen,
    transforms_draw_what_the_micro_batch_says,
    random_numbers_are_seeded_as_by_torch,
    random_numbers_of_a_device_follow_the_micro_batch,
    copies_on_the_host_are_complete_when_they_are_read,
    running_statistics_are_summed_where_they_are,
    losses_without_a_gradient_are_refused,
    changed_gradients_are_refused,
    sums_that_end_are_no_change_of_the_loop,
    dropped_gradients_are_applied,
    steps_of_the_program_s_own_are_refused,
    models_that_change_are_refused,
    what_is_frozen_is_in_the_signature,
    newcomers_undo_a_step_as_the_others_do,
    settings_that_cannot_be_sent_are_refused,
    other_kinds_of_arguments_are_refused,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    check(FACTS)
