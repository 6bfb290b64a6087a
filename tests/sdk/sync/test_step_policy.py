"""How many records a step has, and its learning rate."""

from dataclasses import replace

import pytest
from edl.sync.options import SyncOptions
from edl.sync.step_policy import StepPolicy

OPTIONS = SyncOptions(
    batch_size=30,
    micro_batches=8,
    constant_batch=True,
    code={},
    checkpoints=None,
    checkpoint_steps=0,
    on_nan="fail",
    seed=0,
)


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_a_constant_batch_does_not_depend_on_the_members(workers: int) -> None:
    """Nor does its learning rate."""
    policy = StepPolicy(OPTIONS)
    assert (policy.records(workers), policy.scale(workers)) == (30, 1.0)


@pytest.mark.parametrize(
    ("workers", "records", "scale"), [(1, 4, 0.125), (3, 12, 0.375), (8, 32, 1.0)]
)
def test_other_batches_grow_with_the_members(workers: int, records: int, scale: float) -> None:
    """One micro-batch for each member, and the learning rate with them."""
    policy = StepPolicy(replace(OPTIONS, constant_batch=False))
    assert (policy.records(workers), policy.scale(workers)) == (records, scale)
