"""Semi-synchronous training: members make steps of their own, and exchange the result after a number of them.

LocalSGD (Stich 2019, "Local SGD Converges Fast and Communicates Little") and DiLoCo (Douillard et al.
2023, "Distributed Low-Communication Training of Language Models"): a step of the group is one outer
step. Each member makes some steps of its own optimizer; then the outer optimizer is given the mean of
the members' changes as if it were a gradient. Decision 0067.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from edl.errors import DataError
from edl.overriding import override
from edl.sync.options import SyncOptions
from edl.sync.plans import Assignment, Plan
from edl.sync.replica import State
from edl.sync.step_flags import StepFlags
from edl.torch.state.arrays import OUTER
from edl.torch.state.replica import ModelSetup, TorchReplica, as_json
from edl.torch.step import MemberStep, StepCalls
from edl.torch.torch_round import RoundParts, TorchRound

_RATE, _MOMENTUM = 0.7, 0.9
"""Of the outer optimizer; those of the paper on DiLoCo."""
_OWN = "own"
"""The settings of the members' own optimizer, in a state."""


@dataclass(frozen=True)
class LocalSteps:
    """How members train apart from each other; built with keywords."""

    count: int
    """Steps that each member makes between two exchanges."""
    outer: Any | None
    """The program's outer optimizer; None is SGD with Nesterov's momentum."""

    def options(self, options: SyncOptions) -> SyncOptions:
        """Returns the options of a run of outer steps.

        Args:
            options: Those of the run; `batch_size` is of one member's own step.
        """
        outer = self.outer
        name = "Nesterov" if outer is None else f"{type(outer).__name__} {_numbers(outer)}"
        steps = f"{name} after {self.count} steps of {options.batch_size}"
        code = {**options.code, "outer": steps}
        return replace(options, micro_batches=1, constant_batch=False, code=code)


def _numbers(outer: Any) -> str:
    """Returns the settings of an optimizer that are numbers."""
    numbers = {k: v for k, v in outer.defaults.items() if isinstance(v, (int, float))}
    return ", ".join(f"{name} {value:g}" for name, value in sorted(numbers.items()))[:200]


class LocalReplica(TorchReplica):
    """A model that members train apart from each other between two outer steps."""

    def __init__(self, setup: ModelSetup, *, outer: Any | None) -> None:
        """Takes a setup whose optimizer, scheduler and hook are those of members' own steps.

        Args:
            setup: As in `TorchReplica`.
            outer: Of the model's parameters; None is SGD with Nesterov's momentum.

        Raises:
            DataError: The outer optimizer is not one of the model's parameters.
        """
        super().__init__(setup)
        trained = [parameter for parameter, _ in self.buckets.views()]
        if outer is None:
            outer = torch.optim.SGD(trained, _RATE, momentum=_MOMENTUM, nesterov=True)
        elif {p for group in outer.param_groups for p in group["params"]} - set(
            setup.model.parameters()
        ):
            raise DataError(
                "the outer optimizer has parameters that are not of the model: make it of "
                "model.parameters()"
            )
        self._outer, self._shared = outer, {OUTER: outer}
        self._anchor: dict[Any, Any] = {}
        """The parameters before the outer step that is under way; empty between two."""
        self._schedule: tuple[dict[str, Any], list[dict[str, Any]]] | None = None

    @override
    def values(self) -> dict[str, Any]:
        """Returns the settings of the members' own optimizer, too, but not what it has gathered."""
        own = self._optimizer.state_dict()["param_groups"]
        return {**super().values(), **as_json({_OWN: own})}

    @override
    def load(self, state: State) -> None:
        """Loads a state; what the members' own optimizer has gathered stays."""
        super().load(state)
        if _OWN in state.extra:
            own = self._optimizer.state_dict()["state"]
            self._optimizer.load_state_dict({"state": own, "param_groups": state.extra[_OWN]})

    @override
    def begin_step(self) -> None:
        """Keeps parameters and schedule as they are before an outer step."""
        super().begin_step()
        self._anchor = {p: p.detach().clone() for p, _ in self.buckets.views()}
        if self._scheduler is not None:
            settings = [
                {name: value for name, value in group.items() if name != "params"}
                for group in self._optimizer.param_groups
            ]
            self._schedule = dict(self._scheduler.state_dict()), settings

    def local_step(self) -> bool:
        """Makes a step of this member's own; returns False, without it, if the gradient is not finite."""
        is_finite = self.buckets.is_finite()
        if is_finite:
            self._advance(1.0)
        self.buckets.clear()
        return is_finite

    def write_change(self, weight: float) -> None:
        """Makes the gradient what this member has changed, times its share of the step's records."""
        with torch.no_grad():
            for parameter, view in self.buckets.views():
                torch.sub(self._anchor[parameter], parameter, out=view)
                view.mul_(weight)

    @override
    def step(self, scale: float) -> None:
        """Makes an outer step of the mean of all members' changes."""
        del scale
        self._guard.allow()
        self._restore_parameters()
        self.buckets.attach()
        self._outer.step()
        self.statistics.forget()
        self.buckets.clear()

    @override
    def _undo_step(self) -> None:
        """Drops what this member has trained since the last outer step."""
        self._restore_parameters()
        if self._scheduler is not None and self._schedule is not None:
            state, settings = self._schedule
            self._scheduler.load_state_dict(state)
            for group, before in zip(self._optimizer.param_groups, settings):
                group.update(before)  # rates, and momenta of a schedule such as OneCycleLR
            self._schedule = None
        super()._undo_step()

    def _restore_parameters(self) -> None:
        with torch.no_grad():
            for parameter, values in self._anchor.items():
                parameter.copy_(values)
        self._anchor = {}


class LocalStep(MemberStep):
    """This member's part of an outer step: each backward is followed by a step of its own."""

    def __init__(
        self,
        plan: Plan,
        assignment: Assignment,
        calls: StepCalls,
        replica: LocalReplica,
    ) -> None:
        super().__init__(plan, assignment, calls)
        self._replica = replica

    @override
    def _add_gradient(self, loss: Any, weight: float) -> None:
        del weight  # of the outer step: this one is the member's own
        if self.flags.nan:  # this outer step is left out, or the job fails
            return
        loss.backward()
        if not self._replica.local_step():
            self.flags.nan = 1.0
            self.problem = "the loss is finite, but its gradient is NaN or infinite"


class LocalRound(TorchRound):
    """A round whose steps are outer steps."""

    min_plans = 1
    has_long_steps = True
    _model: LocalReplica

    def __init__(self, parts: RoundParts, *, local_steps: int) -> None:
        """Makes no call.

        Args:
            parts: As in `TorchRound`; the replica is a `LocalReplica`.
            local_steps: Steps that each member makes between two exchanges.
        """
        self._local_steps = local_steps
        super().__init__(parts)

    @override
    def _step_records(self) -> int:
        return self._local_steps * self._options.batch_size * self._growth.workers

    @override
    def _scale(self, workers: int) -> float:
        del workers
        return 1.0

    @override
    def _new_step(self, plan: Plan, assignment: Assignment) -> LocalStep:
        calls = StepCalls(
            next_batch=self._batches.next, micro=self._micro, is_over=lambda: self._sums.is_over
        )
        return LocalStep(plan, assignment, calls, self._model)

    @override
    def _sum_gradients(self, flags: StepFlags) -> None:
        if not (flags.nan or flags.unreadable):
            self._model.write_change(self._share)
        super()._sum_gradients(flags)
