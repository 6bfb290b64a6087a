"""How a member computes and completes the steps of a round over process groups of torch."""

from __future__ import annotations

from collections.abc import Callable

from edl.sync.group_member import GroupMember
from edl.sync.growth import Growth
from edl.sync.plans import Assignment, Plan
from edl.sync.step_flags import StepFlags
from edl.sync.step_policy import StepPolicy
from edl.torch.batches import MemberReader
from edl.torch.step import MemberStep, StepCalls


class GradientSteps(StepPolicy):
    """The policy of a trainer that sums gradients in each step; one object serves all rounds."""

    min_plans = 24  # a `DataLoader` reads some batches ahead
    are_long = False
    """Whether a step may take minutes."""
    may_cut_short = True
    """Whether a member may leave a backward before its end if the round is over."""

    def new_reader(self, reader: MemberReader) -> MemberReader:
        """Returns the reader of a round, given a new reader of this process's micro-batches."""
        return reader

    def new_step(
        self, plan: Plan, assignment: Assignment, calls: StepCalls, *, step: int, growth: Growth
    ) -> MemberStep:
        """Returns this member's part of a step.

        Args:
            plan: The plan of the step.
            assignment: This member's micro-batches, as the round's reader returned them.
            calls: The functions for the step to call.
            step: Number of steps made before it.
            growth: This process's part in the growth of the round.
        """
        del step, growth
        return MemberStep(plan, assignment, calls)

    def contribute(self, flags: StepFlags, share: float) -> None:
        """Prepares this member's gradient for the sum over all members.

        Args:
            flags: This member's flags.
            share: This member's share of the step's records.
        """

    def complete(
        self, exchange: Callable[[], None], is_finite: Callable[[], bool], number: int
    ) -> bool:
        """Makes the exchange that completes a step; returns whether the summed gradient is finite.

        Args:
            exchange: Sums gradients and flags over all members.
            is_finite: Returns whether the sum in this process is finite.
            number: The round.

        Raises:
            RoundOver: A member is lost.
        """
        del number
        exchange()
        return is_finite()

    def save(self, member: GroupMember, rank: int, workers: int, *, wait: bool) -> None:
        """Writes a checkpoint, or this member's part of one.

        Args:
            member: This member.
            rank: Its rank in the round.
            workers: Number of members that have the state.
            wait: Whether to wait until the checkpoint is complete.
        """
        member.save_checkpoint(rank, workers, wait=wait)
