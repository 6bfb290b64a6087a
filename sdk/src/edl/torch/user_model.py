"""Adapts users' torch models to `edl train`: `TorchEngine` trains with the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from edl.data.batches import DataSchedule
from edl.errors import EdlError
from edl.master.session import Session
from edl.model.arrays import to_array
from edl.model.errors import ModelError
from edl.model.functions import SIGNATURES
from edl.model.layer_model import LayerModel, as_sequence
from edl.model.parameters import TORCH_FILE, first_difference, mismatch_error
from edl.model.seeding import seed_everything
from edl.model.user_code import UserCode
from edl.overriding import override
from edl.sources.base import Dataset
from edl.sync.options import RunSpec, SyncOptions, SyncResult
from edl.torch.batches import RecordBatches
from edl.torch.engine import TorchEngine
from edl.torch.requirement import require_torch
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep

T = TypeVar("T")
Arrays = dict[str, Any]
Lookup = Callable[[str, Any], Any]
_LOSS = SIGNATURES["loss"]
_NARROW: dict[str, Any] = {"f": np.float32, "i": np.int64, "u": np.int64}
"""The types that layers and losses expect, by numpy's kinds."""
_KEPT = (np.dtype(np.uint8), np.dtype(np.float16))
"""Types that are not converted: bytes of images, and numbers that the user made narrow on purpose."""


def replica(layer: Any, user_code: UserCode) -> TorchModel:
    """Returns the replica of a module that `model()` returned."""
    require_torch()
    return TorchModel(layer, user_code)


def worker(layer: Any, user_code: UserCode, seed: int) -> Any:
    """Refuses a torch model, because it cannot be trained with parameter servers.

    Raises:
        ModelError: Always.
    """
    del layer, seed
    raise ModelError(
        f"{user_code.model.path} is a model in torch, which trains together (--sync) and not with "
        "parameter servers: leave --async out"
    )


class TorchModel(LayerModel):
    """A user's module and functions: trained, evaluated, exported."""

    def __init__(self, layer: Any, user_code: UserCode) -> None:
        """Calls `optimizer(parameters)`.

        Raises:
            ModelError: The function returned no usable optimizer.
        """
        super().__init__(layer, user_code)
        if not any(parameter.requires_grad for parameter in layer.parameters()):
            raise ModelError(f"model() of {user_code.model.path} has no trainable parameters")
        self.optimizer, scheduler = self._new_optimizer()
        try:
            self._replica = TorchReplica(
                ModelSetup(model=layer, optimizer=self.optimizer, scheduler=scheduler)
            )
        except EdlError as error:
            raise ModelError(f"{user_code.model.path}: {error}") from error
        self._device = next(layer.parameters()).device

    def train(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        micro_batches: int,
        epochs: int,
        shuffle_seed: int | None,
        shuffle: str,
        constant_batch: bool,
        code: Mapping[str, str],
        checkpoints: str | None,
        checkpoint_steps: int,
        on_nan: str,
        seed: int,
        on_step: Callable[[Any], None],
        between: Callable[[Any], None],
        member: Session,
    ) -> SyncResult:
        """Trains together with all other trainers of the job; see `edl.sync.train` for the arguments."""
        options = SyncOptions(
            batch_size=batch_size,
            micro_batches=micro_batches,
            constant_batch=constant_batch,
            code=dict(code),
            checkpoints=None if checkpoints is None else Path(checkpoints),
            checkpoint_steps=checkpoint_steps,
            on_nan=on_nan,
            seed=seed,
            on_step=on_step,
            between=between,
        )
        schedule = DataSchedule(epochs=epochs, shuffle_seed=shuffle_seed, shuffle=shuffle)
        description = schedule.describe(dataset, batch_size, overlap=True)
        spec = RunSpec(dataset=dataset, description=description, options=options)
        with closing(TorchEngine(self._replica, spec, member)) as engine:
            for step in engine.run(RecordBatches()):
                for records in step:
                    self._backward(step, records)
            return engine.result

    @override
    def export(self, folder: Path, lookup: Lookup | None = None) -> None:
        del lookup
        self._user_code.set_context("the export")
        self.layer.eval()
        try:
            if self._user_code.model.has("export"):
                self._user_code.call_function("export", self.layer, folder)
            else:
                state = self.layer.state_dict()
                for name, tensor in state.items():
                    state[name] = tensor.cpu()  # so that machines without a GPU can read it
                torch.save(state, folder / TORCH_FILE)
        finally:
            self.layer.train()

    @override
    def parameters(self) -> Arrays:
        return {name: to_array(tensor) for name, tensor in self.layer.state_dict().items()}

    @override
    def load_parameters(self, arrays: Mapping[str, Any], origin: str) -> None:
        own = self.layer.state_dict()
        difference = first_difference(
            {name: tuple(tensor.shape) for name, tensor in own.items()},
            {name: tuple(array.shape) for name, array in arrays.items()},
        )
        if difference:
            raise mismatch_error(origin, difference)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.as_tensor(arrays[name]))

    def _backward(self, step: MemberStep, records: Any) -> None:
        """Adds the gradient of a micro-batch."""
        micro = step.micro
        if micro is not None:
            activity = f"step {micro.step + 1}, micro-batch {micro.index + 1}"
            self._user_code.set_context(activity, records)
            seed_everything(micro.seed)
        outputs, labels = self.outputs(records)
        loss = self._user_code.call_function("loss", outputs, labels)
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise ModelError(
                f"{_LOSS} of {self._user_code.model.path} does not depend on the parameters: compute it "
                "of the outputs with torch's functions, and return the tensor"
            )
        if loss.numel() != 1:
            self._user_code.to_float(_LOSS, loss)
        self._user_code.call("the gradient", step.backward, loss)

    @override
    def _tensors(self, values: Any) -> Any:
        """Converts arrays to tensors, and moves tensors to the module; leaves other values."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
            is_kept = values.dtype in _KEPT or values.dtype.kind not in _NARROW
            narrow = values.dtype if is_kept else _NARROW[values.dtype.kind]
            return torch.from_numpy(np.array(values, narrow, order="C")).to(self._device)
        if isinstance(values, torch.Tensor):
            return values.to(self._device)
        if isinstance(values, dict):
            return {name: self._tensors(value) for name, value in values.items()}
        if isinstance(values, (list, tuple)):
            return as_sequence(values, map(self._tensors, values))
        return values

    @override
    def _without_training(self, act: Callable[[], T]) -> T:
        self.layer.eval()
        try:
            with torch.no_grad():
                return act()
        finally:
            self.layer.train()

    def _new_optimizer(self) -> tuple[Any, Any]:
        """Returns the user's optimizer, and its learning-rate schedule or None."""
        user_code, path = self._user_code, self._user_code.model.path
        result = user_code.call_function("optimizer", list(self.layer.parameters()))
        optimizer, scheduler = result if isinstance(result, tuple) else (result, None)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ModelError(
                f"optimizer(parameters) of {path} returned {type(optimizer).__name__!r}: it must return "
                "one of torch.optim, or a pair (optimizer, scheduler)"
            )
        is_schedule = isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
        if scheduler is not None and not is_schedule:
            raise ModelError(
                f"optimizer(parameters) of {path} returned the schedule {type(scheduler).__name__!r}: it "
                "must be one of torch.optim.lr_scheduler that needs no metric"
            )
        return optimizer, scheduler
