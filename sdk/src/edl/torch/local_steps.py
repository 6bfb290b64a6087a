"""Semi-synchronous training: members make several local steps between two exchanges of their changes.

LocalSGD (Stich 2019, "Local SGD Converges Fast and Communicates Little") and DiLoCo (Douillard et al.
2023, "Distributed Low-Communication Training of Language Models"): a step of the group is one outer
step. Each member makes some steps with its inner optimizer; then the outer optimizer gets the mean of
the members' changes in place of a gradient. Decision 0067.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from edl.errors import DataError
from edl.overriding import override
from edl.sync.growth import Growth
from edl.sync.options import SyncOptions
from edl.sync.plans import Assignment, Plan
from edl.sync.replica import State
from edl.sync.step_flags import StepFlags
from edl.torch.state.arrays import OUTER
from edl.torch.state.replica import ModelSetup, TorchReplica, as_json
from edl.torch.step import MemberStep, StepCalls
from edl.torch.step_policy import GradientSteps

_RATE, _MOMENTUM = 0.7, 0.9
"""Settings of the default outer optimizer, from the paper on DiLoCo."""
_MAX_SETTINGS = 200
_OWN = "own"
"""Key of the inner optimizer's settings in a state."""


def local_options(options: SyncOptions, count: int, outer: Any | None) -> SyncOptions:
    """Returns the options for a run with outer steps.

    Args:
        options: The options of the run; `batch_size` is the number of records of one local step.
        count: Steps that each member makes between two exchanges.
        outer: The program's outer optimizer; None selects SGD with Nesterov's momentum.
    """
    name = "Nesterov"
    if outer is not None:
        numbers = {k: v for k, v in outer.defaults.items() if isinstance(v, (int, float))}
        settings = ", ".join(f"{key} {value:g}" for key, value in sorted(numbers.items()))
        name = f"{type(outer).__name__} {settings[:_MAX_SETTINGS]}"
    code = {**options.code, "outer": f"{name} after {count} steps of {options.batch_size}"}
    return replace(options, micro_batches=1, constant_batch=False, code=code)


class LocalReplica(TorchReplica):
    """A model that each member trains separately between two outer steps."""

    def __init__(self, setup: ModelSetup, *, outer: Any | None) -> None:
        """Creates the replica.

        Args:
            setup: The model, and the optimizer, scheduler and hook for local steps.
            outer: The outer optimizer of the model's parameters; None selects SGD with Nesterov's
                momentum.

        Raises:
            DataError: The outer optimizer has parameters that are not in the model.
        """
        super().__init__(setup)
        trained = [parameter for parameter, _ in self.buckets.views()]
        if outer is None:
            outer = torch.optim.SGD(trained, _RATE, momentum=_MOMENTUM, nesterov=True)
        elif {p for group in outer.param_groups for p in group["params"]} - set(
            setup.model.parameters()
        ):
            raise DataError(
                "the outer optimizer has parameters that are not in the model: create it with "
                "model.parameters()"
            )
        self._outer, self._shared = outer, {OUTER: outer}
        self._anchor: dict[Any, Any] = {}
        """The parameters before the current outer step; empty between two steps."""
        self._schedule: tuple[dict[str, Any], list[dict[str, Any]]] | None = None

    @override
    def values(self) -> dict[str, Any]:
        """Also returns the inner optimizer's settings, but not its accumulators."""
        own = self._optimizer.state_dict()["param_groups"]
        return {**super().values(), **as_json({_OWN: own})}

    @override
    def load(self, state: State) -> None:
        """Loads a state; the inner optimizer keeps its accumulators."""
        super().load(state)
        if _OWN in state.extra:
            own = self._optimizer.state_dict()["state"]
            self._optimizer.load_state_dict({"state": own, "param_groups": state.extra[_OWN]})

    @override
    def begin_step(self) -> None:
        """Copies the parameters and the schedule before an outer step."""
        super().begin_step()
        self._anchor = {p: p.detach().clone() for p, _ in self.buckets.views()}
        if self._scheduler is not None:
            settings = [
                {name: value for name, value in group.items() if name != "params"}
                for group in self._optimizer.param_groups
            ]
            self._schedule = dict(self._scheduler.state_dict()), settings

    def local_step(self) -> bool:
        """Makes a local step and returns True; only returns False if the gradient is not finite."""
        is_finite = self.buckets.is_finite()
        if is_finite:
            self._advance(1.0)
        self.buckets.clear()
        return is_finite

    def write_change(self, weight: float) -> None:
        """Writes this member's change, times its share of the step's records, into the gradient."""
        with torch.no_grad():
            for parameter, view in self.buckets.views():
                torch.sub(self._anchor[parameter], parameter, out=view)
                view.mul_(weight)

    @override
    def step(self, scale: float) -> None:
        """Makes an outer step with the mean of all members' changes."""
        del scale
        self._guard.allow()
        self._restore_parameters()
        self.buckets.attach()
        self._outer.step()
        self.statistics.forget()
        self.buckets.clear()

    @override
    def _undo_step(self) -> None:
        """Drops the changes since the last outer step."""
        self._restore_parameters()
        if self._scheduler is not None and self._schedule is not None:
            state, settings = self._schedule
            self._scheduler.load_state_dict(state)
            for group, before in zip(self._optimizer.param_groups, settings):
                group.update(before)  # rates, and momenta in a schedule such as OneCycleLR
            self._schedule = None
        super()._undo_step()

    def _restore_parameters(self) -> None:
        with torch.no_grad():
            for parameter, values in self._anchor.items():
                parameter.copy_(values)
        self._anchor = {}


class LocalSteps(GradientSteps):
    """The policy of outer steps: the inner optimizer makes a step after each backward."""

    min_plans = 1
    are_long = True

    def __init__(self, options: SyncOptions, replica: LocalReplica, count: int) -> None:
        """Creates the policy.

        Args:
            options: The run's options, as `local_options` returned them.
            replica: The model of this member.
            count: Steps that each member makes between two exchanges.
        """
        super().__init__(options)
        self._replica, self._count = replica, count

    @override
    def records(self, workers: int) -> int:
        return self._count * self._options.batch_size * workers

    @override
    def scale(self, workers: int) -> float:
        del workers
        return 1.0

    @override
    def new_step(
        self, plan: Plan, assignment: Assignment, calls: StepCalls, *, step: int, growth: Growth
    ) -> MemberStep:
        # only changes are summed: the program may change gradients, and backward begins no sums
        local_calls = StepCalls(
            next_batch=calls.next_batch,
            micro=calls.micro,
            is_over=calls.is_over,
            backward=self._make_local_step,
        )
        return super().new_step(plan, assignment, local_calls, step=step, growth=growth)

    @override
    def contribute(self, flags: StepFlags, share: float) -> None:
        if not (flags.nan or flags.unreadable):
            self._replica.write_change(share)

    def _make_local_step(self, loss: Any, weight: float, flags: StepFlags) -> str:
        # the micro-batch's weight in the outer step; a local step has only this micro-batch
        del weight
        if flags.nan:  # this outer step is skipped, or the job fails
            return ""
        loss.backward()
        is_finite = self._replica.local_step()
        return "" if is_finite else "the loss is finite, but its gradient is NaN or infinite"
