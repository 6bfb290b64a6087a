"""Adapts a torch model and its optimizer to `GroupModel`: reads and loads the state, and makes steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edl.errors import CheckpointError, DataError, one_line
from edl.overriding import override
from edl.sync import step_flags
from edl.sync.parts import ArrayGroup, PartedReplica
from edl.sync.replica import GroupModel, State
from edl.torch.buckets import GradientBuckets
from edl.torch.pods.commands import Announcer, Apply, Clear, Load, SingleProcess
from edl.torch.pods.shards import local
from edl.torch.program_checks import OptimizerGuard, check_types
from edl.torch.state.arrays import MODEL, OPTIMIZER, as_own, as_state, unflatten
from edl.torch.state.norm_statistics import NormStatistics
from edl.torch.state.state_parts import StateParts


@dataclass(frozen=True)
class ModelSetup:
    """The program's model and optimizer; built with keywords."""

    model: Any
    """A `torch.nn.Module`."""
    optimizer: Any
    """The optimizer of the model's parameters."""
    scheduler: Any | None = None
    """A `torch.optim.lr_scheduler`, stepped after each step."""
    before_step: Callable[[], object] | None = None
    """Called before the optimizer, for example to clip the gradient."""


class TorchReplica(GroupModel, PartedReplica):
    """A `GroupModel` of a torch module, an optimizer, and an optional schedule."""

    def __init__(self, setup: ModelSetup, announcer: Announcer | None = None) -> None:
        """Makes the gradients views of buckets; a step's flags are stored and summed after them.

        Args:
            setup: The model and its optimizer.
            announcer: Tells the other processes of a pod to change their parts of the model, too.
        """
        self._announcer = SingleProcess() if announcer is None else announcer
        model, optimizer = setup.model, setup.optimizer
        check_types(model, optimizer)
        self.model, self._optimizer, self._scheduler = model, optimizer, setup.scheduler
        self._shared = {OPTIMIZER: optimizer}
        """The optimizers with the same state in all members, by kind."""
        self._before_step = setup.before_step
        self._check_optimizer()
        self.buckets = GradientBuckets(model.named_parameters(), step_flags.SIZE)
        self.size = self.buckets.size
        self._named = [(n, p, p.requires_grad) for n, p in model.named_parameters()]
        """Each parameter's name, the parameter, and whether it was trainable at construction."""
        self._guard = OptimizerGuard(optimizer)
        self.statistics = NormStatistics(model)
        self._parts = StateParts(model, optimizer, self.statistics)

    def signature(self) -> str:
        """Returns a digest of names, types and shapes; it must be the same in all members.

        Raises:
            CheckpointError: The optimizer's or schedule's settings cannot be sent to other members.
        """
        self.values()  # raises an error now, instead of when the first newcomer needs them
        state = self.model.state_dict()
        rows: list[Any] = [[n, str(t.dtype), list(t.shape)] for n, t in state.items()]
        rows += sorted(
            n for n, _, is_trained in self._named if not is_trained
        )  # another member might train different parameters of the same size
        text = json.dumps([rows, type(self._optimizer).__name__])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @override
    def write_gradient(self, flat: np.ndarray) -> None:
        offset, values = 0, torch.from_numpy(flat)
        for gradient in self.buckets.gradients():
            gradient.copy_(values[offset : offset + gradient.numel()])
            offset += gradient.numel()

    def begin_step(self) -> None:
        """Prepares a step: copies everything that `clear` restores.

        Raises:
            DataError: The program has converted the model, or frozen or unfrozen a parameter.
        """
        self.buckets.check()
        self._check_frozen()
        self._guard.forbid()
        self.statistics.save()

    @override
    def step(self, scale: float) -> None:
        self._announcer.announce(Apply(scale))
        self._guard.allow()
        self._advance(scale)
        self.statistics.forget()
        self.buckets.clear()

    def _advance(self, scale: float) -> None:
        """Applies the gradient, and advances the schedule."""
        self.buckets.attach()
        rates = [group["lr"] for group in self._optimizer.param_groups]
        if self._before_step is not None:
            self._before_step()
        for group, rate in zip(self._optimizer.param_groups, rates):
            group["lr"] = rate * scale
        with self._guard.allowing():
            self._optimizer.step()
        for group, rate in zip(self._optimizer.param_groups, rates):
            group["lr"] = rate
        if self._scheduler is not None:
            self._scheduler.step()

    @override
    def clear(self) -> None:
        """Drops the gradient, and restores running statistics."""
        self._undo_step()
        self.buckets.clear()

    def move(self) -> None:
        """Clears the replica and gives the gradient new memory, because abandoned sums may still run."""
        self.statistics.move()
        self.buckets.move()
        self._undo_step()

    def _undo_step(self) -> None:
        """Undoes the changes of the current step, except for the gradient."""
        self._announcer.announce(Clear())
        self._guard.allow()
        self.statistics.restore()

    def tensors(self) -> dict[str, Any]:
        """Returns the tensors of model and optimizers by name, nested as DCP does, without copies."""
        tensors: dict[str, Any] = {MODEL: self.model.state_dict()}
        for kind, optimizer in self._shared.items():
            states = optimizer.state_dict()["state"]
            by_index = {
                str(index): {
                    n: v for n, v in sorted(entries.items()) if isinstance(v, torch.Tensor)
                }
                for index, entries in sorted(states.items())
            }
            tensors[kind] = {"state": by_index}
        return tensors

    def values(self) -> dict[str, Any]:
        """Returns the entries of the state that are not tensors, as JSON."""
        extra: dict[str, Any] = {}
        for kind, optimizer in self._shared.items():
            state = optimizer.state_dict()
            values = {
                str(index): {n: v for n, v in entries.items() if not isinstance(v, torch.Tensor)}
                for index, entries in state["state"].items()
            }
            extra[kind] = {"groups": state["param_groups"], "values": values}
        if self._scheduler is not None:
            extra["scheduler"] = self._scheduler.state_dict()
        return as_json(extra)

    @override
    def state(self) -> State:
        """Returns the state after the newest step; arrays of tensors on the host are views."""
        tensors = self.tensors()
        named = {f"{MODEL}/{name}": tensor for name, tensor in tensors[MODEL].items()}
        for kind in self._shared:
            for index, entries in tensors[kind]["state"].items():
                named |= {f"{kind}/{index}/{name}": tensor for name, tensor in entries.items()}
        return as_state(named, self.values())

    @override
    def load(self, state: State) -> None:
        self._announcer.announce(Load())
        tree = unflatten(state)
        own = {name: local(tensor) for name, tensor in self.model.state_dict().items()}
        for name in sorted(own.keys() | tree[MODEL].keys()):
            mine, other = own.get(name), tree[MODEL].get(name)
            if mine is None or other is None or mine.shape != other.shape:
                shapes = [None if t is None else list(t.shape) for t in (mine, other)]
                raise CheckpointError(
                    f"{name} is of shape {shapes[1]} in the state, and {shapes[0]} in this model: "
                    "the state is of another model: give the state of this model, or another folder"
                )
        try:
            self._parts.divide(tree)
            self.model.load_state_dict(tree[MODEL])
            for kind, optimizer in self._shared.items():
                if kind in tree:  # checkpoints of runs with local steps lack the inner optimizer
                    optimizer.load_state_dict(tree[kind])
            self._load_schedule(tree)
        except (ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(
                f"the state is of another model ({one_line(error)}): give the state of this model, or "
                "another folder"
            ) from error
        self.statistics.forget()
        self.buckets.clear()

    def _load_schedule(self, tree: dict[str, Any]) -> None:
        if self._scheduler is not None and "scheduler" in tree:
            own = self._scheduler.state_dict()
            self._scheduler.load_state_dict(as_own(tree["scheduler"], own))

    def like(self, path: Sequence[Any]) -> Any:
        """Returns the tensor at a model's path in `tensors`, or the parameter for an optimizer's path."""
        if path[0] == MODEL:
            return self.model.state_dict().get(path[1])
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        index = int(path[2])
        return parameters[index] if index < len(parameters) else None

    @override
    def groups(self) -> list[ArrayGroup]:
        return self._parts.groups() if OPTIMIZER in self._shared else []

    @override
    def read_slice(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._parts.read_slice(name, start, stop)

    @override
    def write_slice(self, name: str, start: int, elements: np.ndarray) -> None:
        self._parts.write_slice(name, start, elements)

    @override
    def rest(self) -> State:
        return self._parts.rest(self.values())

    @override
    def load_rest(self, rest: State) -> None:
        self._load_schedule(self._parts.load_rest(rest))

    def close(self) -> None:
        """Leaves the model and its optimizer to the program."""
        self._guard.close()
        self.buckets.close()

    def _check_frozen(self) -> None:
        for name, parameter, was_trained in self._named:
            if parameter.requires_grad and not was_trained:
                raise DataError(
                    f"{name} was frozen when Training was created, and is not now: its gradient would be of this "
                    "trainer alone. Leave it trainable from the beginning, with a learning rate of 0 until then"
                )
            if was_trained and not parameter.requires_grad:
                raise DataError(
                    f"{name} was trained when Training was created, and is frozen now: momentum and weight decay "
                    "would still change it. Leave it trainable, with a learning rate of 0 from now on"
                )

    def _check_optimizer(self) -> None:
        name = type(self._optimizer).__name__
        if isinstance(self._optimizer, torch.optim.SparseAdam):
            raise DataError(
                f"{name} only takes sparse gradients, and sums of gradients are dense: use another "
                "optimizer, such as Adam"
            )
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise DataError(
                f"{name} computes losses itself and cannot use summed gradients: use another "
                "optimizer, such as AdamW"
            )
        if isinstance(self._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise DataError(
                "ReduceLROnPlateau waits for a metric that a step does not have: use a schedule of "
                "steps, such as CosineAnnealingLR"
            )
        trained = {p for p in self.model.parameters() if p.requires_grad}
        optimized = {p for group in self._optimizer.param_groups for p in group["params"]}
        if not optimized <= set(self.model.parameters()):
            raise DataError(
                "the optimizer has parameters that are not in the model: create it with "
                "model.parameters()"
            )
        if trained and not trained & optimized:
            raise DataError(
                "the optimizer has none of the model's parameters: create it with model.parameters()"
            )


def as_json(extra: dict[str, Any]) -> dict[str, Any]:
    """Encodes settings as JSON and returns the decoded copy, as other members would get it.

    Raises:
        CheckpointError: A setting is not JSON.
    """
    try:
        text = json.dumps(extra)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the state of optimizer or scheduler holds something that is not a number, text or list: {error}"
        ) from error
    parsed: dict[str, Any] = json.loads(text)
    return parsed
