"""`edl.sync.train` trains a replica of a model synchronously with other trainers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from edl.data.batches import DataSchedule
from edl.master.protocol import Round
from edl.master.session import Session, session
from edl.sources.base import Dataset
from edl.sync import step_flags
from edl.sync.member_loop import MemberLoop
from edl.sync.options import OnStep, RunSpec, SyncOptions, SyncResult
from edl.sync.replica import Replica
from edl.sync.round_runner import RoundRunner


def train(
    replica: Replica,
    dataset: Dataset,
    batch_size: int,
    *,
    micro_batches: int = 8,
    epochs: int | None = None,
    shuffle_seed: int | None = None,
    shuffle: str = "records",
    task_records: int | None = None,
    constant_batch: bool = True,
    code: Mapping[str, str] | None = None,
    checkpoints: Path | str | None = None,
    checkpoint_steps: int = 0,
    on_nan: str = "fail",
    seed: int = 0,
    on_step: OnStep = None,
    between: OnStep = None,
    member: Session | None = None,
) -> SyncResult:
    """Trains together with all other trainers of the job, while trainers come and go.

    Every member holds the same parameters after every step. The records of a step depend only on
    the seed, so the loss curve does not depend on which trainers come and go, except for rounding.

    Args:
        replica: This trainer's copy of the model.
        dataset: From `edl.from_arrays` or a similar function; the same in all trainers.
        batch_size: Records per step, for all members together.
        micro_batches: Number of parts of a step; at most this many trainers can share the step.
        epochs: How often each record is trained on; by default EDL_EPOCHS, or 1 if that is not set.
        shuffle_seed: Orders records differently in each epoch; None keeps their order.
        shuffle: What to shuffle, see `edl.batches`.
        task_records: Records that are leased and acknowledged together.
        constant_batch: If False, each member computes one micro-batch per step, and the learning
            rate is multiplied by members / micro_batches.
        code: Entries that must be the same in all trainers, by name, such as a program version.
        checkpoints: Checkpoint folder, the same for all trainers. If all members are lost, training
            continues from the newest complete checkpoint.
        checkpoint_steps: Number of steps between two checkpoints; one more is written at the end.
        on_nan: What to do if a loss is not finite: "fail" the job, or "skip" the step.
        seed: Seed of everything random in a step, such as dropout.
        on_step: Called after each step.
        between: For evaluations: called after each step, with the same state in all members.
        member: This trainer's session; the process's by default.

    Returns:
        This trainer's view of the run. After SIGTERM the call does not return: the process exits
        with code 143 once the current step is done, or when its grace period is over.

    Raises:
        DataError: The value of an argument is invalid.
        TrainingError: A loss was not finite, and `on_nan` is "fail".
        Refused: This trainer's program differs from the others' program.
        Unavailable: The master did not answer for too long.
    """
    options = SyncOptions(
        batch_size=batch_size,
        micro_batches=micro_batches,
        constant_batch=constant_batch,
        code=dict(code or {}),
        checkpoints=None if checkpoints is None else Path(checkpoints),
        checkpoint_steps=checkpoint_steps,
        on_nan=on_nan,
        seed=seed,
        on_step=on_step,
        between=between,
    )
    schedule = DataSchedule(
        epochs=epochs, shuffle_seed=shuffle_seed, shuffle=shuffle, task_records=task_records
    )
    # the leader is the only consumer: epochs may overlap without mixing their records
    description = schedule.describe(dataset, batch_size, overlap=True)
    spec = RunSpec(dataset=dataset, description=description, options=options)
    own_session = session() if member is None else member
    with contextlib.closing(Engine(replica, spec, own_session)) as engine:
        result = engine.run()
    if not result.whole:
        own_session.check()
    return result


class Engine(MemberLoop):
    """One trainer's synchronous training over rings of connections."""

    def __init__(self, replica: Replica, spec: RunSpec, session: Session) -> None:
        super().__init__(replica, spec, session)
        # unlike `zeros`, `full` touches all pages now, before others wait for this member's first sum
        self.member.buffer = np.full(replica.size + step_flags.SIZE, 0, np.float32)

    def run(self) -> SyncResult:
        """Takes part in rounds until all data is trained, or until this trainer leaves."""
        for _ in self._train(self._take_part):
            pass
        return self.result

    @contextlib.contextmanager
    def _take_part(self, round_: Round) -> Iterator[RoundRunner]:
        ring = self._connect_ring(round_, self.interrupt, range(round_.world_size), 0)
        with contextlib.closing(ring):
            yield RoundRunner(self.member, ring, round_, self._streams(round_))
