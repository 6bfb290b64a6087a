"""`edl.torch.Training`: a torch training loop in which trainers come and go without a restart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edl.data.batches import DataSchedule
from edl.errors import DataError
from edl.master.session import Session, session
from edl.sources.base import Dataset
from edl.sync.options import OnStep, RunSpec, SyncOptions, SyncResult
from edl.torch.batches import LoaderBatches
from edl.torch.engine import TorchEngine
from edl.torch.local_steps import LocalReplica, LocalSteps, local_options
from edl.torch.pods.follower import Follower
from edl.torch.pods.leading import pod_process
from edl.torch.pods.shards import check_alone, mesh_of
from edl.torch.sampler import IndexSource, LeasedSampler
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep
from edl.torch.workers import end_with_parent

_MICRO_BATCHES = 8


class Training:
    """Synchronous training of a torch module together with all other trainers of the job.

    ```python
    with edl.torch.Training(model, optimizer, records=len(data), batch_size=64) as training:
        loader = DataLoader(data, batch_sampler=training.sampler, num_workers=2)
        for step in training.steps(loader):
            for images, labels in step:
                step.backward(cross_entropy(model(images), labels))
    ```

    The model is not wrapped. If FSDP2 (`fully_shard`) has sharded the model over the processes of a
    pod, the pod is one member. After each step, `steps` sums the gradients and calls the optimizer.
    All members hold the same model after each step.

    Args:
        model: A `torch.nn.Module`, on the device on which it is trained.
        optimizer: The optimizer of the model's parameters; `steps` calls it.
        records: Number of records of the data set, such as `len(train_set)`.
        batch_size: Records per step, for all members together.
        name: Name of the data set at the master.
        micro_batches: Number of parts of a step, 8 by default; at most this many trainers can share
            it. The `DataLoader` makes batches of batch_size / micro_batches records.
        epochs: How often each record is trained on; by default EDL_EPOCHS, or 1 if that is not set.
        shuffle_seed: Orders records differently in each epoch; None keeps their order.
        task_records: Records that are leased and acknowledged together.
        constant_batch: If False, each member computes one micro-batch per step, and the learning
            rate is multiplied by members / micro_batches.
        local_steps: If not 0, each member makes this number of local steps, on `batch_size` records each,
            between two outer steps of all members, as in LocalSGD and DiLoCo.
        outer: With `local_steps`, the optimizer that gets the mean of the members' changes; by default SGD
            with learning rate 0.7 and Nesterov's momentum 0.9.
        scheduler: A `torch.optim.lr_scheduler`; `steps` calls it after each step.
        before_step: Called before the optimizer, for example to clip the gradient.
        code: Entries that must be the same in all trainers, by name.
        checkpoints: Folder for checkpoints, the same for all trainers.
        checkpoint_steps: Number of steps between two checkpoints; one more is written at the end.
        on_nan: What to do if a loss or gradient is not finite: "fail" the job, or "skip" the step.
        seed: Seed of everything random in a step, such as dropout.
        on_step: Called after each step with its metrics.
        member: This trainer's session; the process's by default.

    Raises:
        DataError: The value of an argument is invalid, or the model is wrapped.
        TrainingError: The model has no trainable parameters.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        records: int,
        batch_size: int,
        name: str = "train",
        micro_batches: int | None = None,
        epochs: int | None = None,
        shuffle_seed: int | None = None,
        task_records: int | None = None,
        constant_batch: bool = True,
        local_steps: int = 0,
        outer: Any | None = None,
        scheduler: Any | None = None,
        before_step: Callable[[], object] | None = None,
        code: Mapping[str, str] | None = None,
        checkpoints: Path | str | None = None,
        checkpoint_steps: int = 0,
        on_nan: str = "fail",
        seed: int = 0,
        on_step: OnStep = None,
        member: Session | None = None,
    ) -> None:
        """Makes no call yet."""
        _check_local(local_steps, outer, micro_batches, constant_batch=constant_batch)
        parts = min(batch_size, _MICRO_BATCHES) if micro_batches is None else micro_batches
        options = SyncOptions(
            batch_size=batch_size,
            micro_batches=1 if local_steps else parts,
            constant_batch=constant_batch,
            code=dict(code or {}),
            checkpoints=None if checkpoints is None else Path(checkpoints),
            checkpoint_steps=checkpoint_steps,
            on_nan=on_nan,
            seed=seed,
            on_step=on_step,
        )
        dataset = Dataset(name, IndexSource(records))
        schedule = DataSchedule(epochs=epochs, shuffle_seed=shuffle_seed, task_records=task_records)
        description = schedule.describe(dataset, batch_size, overlap=True)
        self.sampler = LeasedSampler()
        """The `batch_sampler` of the `DataLoader`."""
        setup = ModelSetup(
            model=model, optimizer=optimizer, scheduler=scheduler, before_step=before_step
        )
        spec = RunSpec(dataset=dataset, description=description, options=options)
        self._engine = _new_engine(setup, spec, member, local_steps=local_steps, outer=outer)

    @property
    def result(self) -> SyncResult:
        """This trainer's view of the run so far."""
        return self._engine.result

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of tensors that this trainer has summed, sent or received, in rounds that have ended."""
        return self._engine.exchanged_bytes

    def steps(self, loader: Any) -> Iterator[MemberStep]:
        """Yields one step after the other, until all data is trained.

        Args:
            loader: A `DataLoader` with `batch_sampler=training.sampler`. Workers with
                `persistent_workers=True` are not restarted when members change.

        Raises:
            DataError: The loader has another sampler, or the program left out a micro-batch.
            TrainingError: A loss was not finite, and `on_nan` is "fail".
            Refused: This trainer's program or model differs from that of the others.
            Unavailable: The master did not answer for too long.
            SystemExit: SIGTERM came, and this trainer has left; the exit code is 143.
        """
        if getattr(loader, "batch_sampler", None) is not self.sampler:
            raise DataError(
                "the DataLoader has another sampler: make it with batch_sampler=training.sampler, and "
                "without batch_size, shuffle, sampler and drop_last"
            )
        end_with_parent(loader)
        yield from self._engine.run(LoaderBatches(loader, self.sampler))

    def close(self) -> None:
        """Ends this trainer's part, and reports its remaining results to the master."""
        self._engine.close()

    def __enter__(self) -> Training:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _new_engine(
    setup: ModelSetup,
    spec: RunSpec,
    member: Session | None,
    *,
    local_steps: int,
    outer: Any | None,
) -> TorchEngine | Follower:
    """Returns this process's part in the job.

    Raises:
        DataError: These options do not allow a sharded model, or several processes belong to this
            trainer.
    """
    mesh = mesh_of(setup.model)
    if mesh is not None:
        _check_sharded(spec.options, local_steps=local_steps)
        return pod_process(mesh, setup, spec, member)
    if local_steps:
        options = local_options(spec.options, local_steps, outer)
        replica = LocalReplica(setup, outer=outer)
        policy = LocalSteps(options, replica, local_steps)
        engine = TorchEngine(replica, replace(spec, options=options), member, policy=policy)
    else:
        engine = TorchEngine(TorchReplica(setup), spec, member)
    check_alone((session() if member is None else member).settings.trainer, os.environ)
    return engine


def _check_sharded(options: SyncOptions, *, local_steps: int) -> None:
    """Refuses options that do not support a sharded model.

    Raises:
        DataError: One of them is given.
    """
    if local_steps or not options.constant_batch:
        name = "local_steps" if local_steps else "constant_batch=False"
        raise DataError(f"{name} is given, and the model is sharded by fully_shard: leave it out")


def _check_local(
    local_steps: Any, outer: Any | None, micro_batches: int | None, *, constant_batch: bool
) -> None:
    """Refuses arguments that contradict `local_steps`.

    Raises:
        DataError: An argument contradicts `local_steps`.
    """
    if isinstance(local_steps, bool) or not isinstance(local_steps, int) or local_steps < 0:
        raise DataError(
            f"local_steps is {local_steps!r:.40}: it is the number of steps between two exchanges, such as "
            "50; 0 exchanges each gradient"
        )
    if outer is not None and not local_steps:
        raise DataError("outer is given without local_steps: give both, or leave it out")
    if local_steps and (micro_batches is not None or not constant_batch):
        raise DataError(
            "with local_steps each member makes separate steps: leave micro_batches and constant_batch "
            "out, and give as batch_size the records of one such step"
        )
