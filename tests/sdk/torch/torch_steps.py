"""Facts about single steps of a loop in torch, without a job; run by `test_torch.py`."""

from typing import Any

import torch
from edl.errors import RoundOver
from edl.master.protocol import Lease
from edl.sync.plans import Assignment, Plan, Span
from edl.sync.replica import Micro
from edl.torch.buckets import GradientBuckets
from edl.torch.step import MemberStep

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import FEATURES, network


def step_of(
    micro_batches: int, is_over: Any = lambda: False, before_last: Any = lambda: None
) -> MemberStep:
    """A step of which one member has so many micro-batches of eight records."""
    lease = Lease("t", 1, "training", "train", 0, 0, 8 * micro_batches, None, 60.0)
    assignment: Assignment = [(i, (Span(lease, 8 * i, 8),)) for i in range(micro_batches)]
    plan = Plan("plan", tuple(span for _, spans in assignment for span in spans))
    batches = (torch.ones(8, FEATURES) for _ in range(micro_batches))
    about = batches.__next__, lambda index: Micro(0, index, index), before_last
    return MemberStep(plan, assignment, *about, is_over=is_over)


def a_step_that_cannot_count_is_left() -> None:
    """Once a member is lost there is no further micro-batch, and no backward of the one under way."""
    model = network()
    batches: list[torch.Tensor] = []
    gradients: list[list[torch.Tensor]] = []
    step = step_of(4, lambda: len(batches) > 1)
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
    model = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(6)))
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
            step.backward(model(torch.ones(2, 600)).square().mean())
        assert step.is_cut_short == may_end
        assert len(reached) <= count, len(reached)
    buckets.close()


FACTS = (a_step_that_cannot_count_is_left, a_backward_whose_sums_cannot_begin_ends)

if __name__ == "__main__":
    torch.set_num_threads(1)
    check(FACTS)
