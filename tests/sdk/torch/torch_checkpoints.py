"""Facts about checkpoints of `edl.torch.Training`; run by `test_torch.py`."""

import errno
import logging
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import edl
import pytest
import torch
import torch.distributed.checkpoint as dcp
from edl.errors import CheckpointError
from edl.master import protocol
from edl.sync.options import SyncStep
from edl.torch.state.dcp_files import DcpFiles, DcpShare
from edl.torch.state.replica import ModelSetup, TorchReplica
from edl.torch.step import MemberStep

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import RECORDS, Crew, Trainer, network, train
from tests.sdk.torch.devices import DEVICE, IS_CPU
from tests.sdk.torch.torch_training import CLOSE, alone, gate, is_near, job

EVERY = 5


@contextmanager
def saving_job(**options: Any) -> Iterator[tuple[Crew, Path]]:
    """A job with checkpoints, and their folder."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"checkpoints": folder, "checkpoint_steps": EVERY, **options}
        with job(**options) as crew:
            yield crew, Path(folder)


def latest(folder: Path) -> edl.Checkpoint:
    """The newest checkpoint, which there must be."""
    checkpoint = edl.latest_checkpoint(folder)
    assert checkpoint is not None
    return checkpoint


def leaving_at(step: int, members: int) -> Callable[[Trainer, SyncStep], None]:
    """Has all members leave after a step, once they are all there."""
    act, _ = gate(members, 1)

    def leave(trainer: Trainer, made: SyncStep) -> None:
        act(trainer, made)
        if made.step == step:
            trainer.leave()

    return leave


def parts(checkpoint: edl.Checkpoint) -> list[str]:
    """Names of the files that members have written."""
    return sorted(path.name for path in checkpoint.path.glob("*.distcp"))


def training_continues_from_a_checkpoint() -> None:
    """After all have left: model, optimizer and data go back together, and torch reads the files."""
    with saving_job() as (crew, folder):
        assert not crew.add(leaving_at(12, 1)).end().whole
        tree = {"model": network(3).state_dict()}
        dcp.load(tree, checkpoint_id=latest(folder).path, no_dist=True)
        for name, tensor in crew.trainers[0].model.state_dict().items():
            assert torch.equal(tree["model"][name], tensor)
        assert crew.add(model=network(7)).end().whole
        assert is_near(crew.losses(), alone())
        assert crew.done() == 2 * RECORDS


def members_write_parts_and_others_read_them() -> None:
    """Three write a part each, two continue: the curve and the books are as without the stop."""
    with saving_job() as (crew, folder):
        act = leaving_at(12, 3)
        for trainer in [crew.add(act) for _ in range(3)]:
            assert not trainer.end().whole
        assert parts(latest(folder)) == ["__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
        assert latest(folder).step == 13  # SIGTERM comes after a step, and is heeded after the next
        act, _ = gate(2, 13)
        for trainer in [crew.add(act, network(7)) for _ in range(2)]:
            trainer.end()
        assert is_near(crew.losses(), alone())
        assert crew.done() == 2 * RECORDS


def the_books_go_back_with_the_model() -> None:
    """All are lost without a word: the next ones continue from the newest checkpoint, with its data."""
    with saving_job() as (crew, folder):
        act, _ = gate(2, 1)

        def end(model: Any, step: MemberStep) -> None:
            if all(len(trainer.steps) >= 13 for trainer in crew.trainers):
                raise KeyboardInterrupt
            train(model, step)

        for trainer in [crew.add(act, body=end) for _ in range(2)]:
            assert trainer.error_of().startswith("KeyboardInterrupt")
        assert latest(folder).step in (5, 10)
        assert crew.add(model=network(7)).end().whole
        for trainer in crew.trainers:
            for step in trainer.steps:
                loss = alone()[step.step]
                assert abs(step.metrics["loss"] - loss) < CLOSE * (1 + loss), step.step
        assert crew.done() == 2 * RECORDS


def a_disk_that_is_full_is_named_and_costs_no_step() -> None:
    """One member cannot write: no checkpoint appears until it can; the others say why."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("edl").addHandler(handler)
    write = DcpShare.write

    def full(self: DcpShare, folder: Path) -> protocol.Json:
        if self.rank == 1 and threading.current_thread().name == "edl-checkpoint":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, folder)

    DcpShare.write = full  # type: ignore[method-assign]
    try:
        with saving_job() as (crew, folder):
            act, _ = gate(2, 1)
            for trainer in [crew.add(act) for _ in range(2)]:
                trainer.end()
            assert crew.done() == 2 * RECORDS
            assert edl.latest_checkpoint(folder) is None
            assert list(folder.iterdir()) == []
    finally:
        DcpShare.write = write  # type: ignore[method-assign]
        logging.getLogger("edl").removeHandler(handler)
    assert any(
        "could not write its part: OSError: [Errno 28] No space left on device" in line
        for line in lines
    ), lines
    assert all("\n" not in line for line in lines)


def a_checkpoint_that_lacks_a_part_is_not_taken() -> None:
    """The one before is, where one was damaged or is not complete."""
    with saving_job(checkpoint_steps=0) as (crew, folder):
        for step in (3, 6, 9):
            assert not crew.add(leaving_at(step, 1)).end().whole
            assert latest(folder).step == step + 1
        (latest(folder).path / parts(latest(folder))[0]).unlink()
        assert latest(folder).step == 7
        (latest(folder).path / "manifest.json").unlink()
        assert latest(folder).step == 4


def only_tensors_are_read() -> None:
    """Metadata that names something else is refused in a line, and nothing of it runs."""
    with saving_job() as (crew, folder):
        crew.add(leaving_at(12, 1)).end()
        checkpoint = latest(folder)
        for damage in (pickle.dumps(os.system), b"", b"junk", pickle.dumps(7)):
            (checkpoint.path / ".metadata").write_bytes(damage)
            with pytest.raises(
                CheckpointError, match="cannot be read as a checkpoint of torch"
            ) as error:
                DcpFiles().read(checkpoint, {})
            assert "\n" not in str(error.value)


def parts_that_are_gone_are_named() -> None:
    """Also where a file was deleted after the check of all: DCP's own exception is no `Exception`."""
    with saving_job() as (crew, folder):
        crew.add(leaving_at(6, 1)).end()
        checkpoint = latest(folder)
        (checkpoint.path / parts(checkpoint)[0]).unlink()
        with pytest.raises(CheckpointError, match=r"of torch \(FileNotFoundError: .*distcp"):
            DcpFiles().read(checkpoint, {})


def states_of_all_types_are_kept() -> None:
    """Half precision, scalars, empty tensors, a schedule; other networks are refused by name."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 2).bfloat16(), torch.nn.BatchNorm1d(2))
    model.register_buffer("nothing", torch.zeros(0, 3))
    model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    replica = TorchReplica(ModelSetup(model=model, optimizer=optimizer, scheduler=scheduler))
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.rand_like(parameter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shares = [DcpFiles().stage(replica, rank, 3) for rank in range(3)]
        results = [share.write(folder) for share in shares]
        shares[0].finish(folder, results)
        state = DcpFiles().read(edl.Checkpoint(folder, 1, 1, {}), shares[0].extra)
    expected = replica.state()
    assert state.extra == expected.extra
    assert state.arrays.keys() == expected.arrays.keys()
    for key, array in expected.arrays.items():
        assert (state.arrays[key] == array).all(), key
        assert state.arrays[key].dtype == array.dtype, key


def copies_are_those_of_their_step() -> None:
    """The next step may change the model before its copy has arrived on the host, and reading finds the copy."""
    model = network()
    replica = TorchReplica(
        ModelSetup(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.5))
    )
    before = {name: tensor.cpu().clone() for name, tensor in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        share = DcpFiles().stage(replica, 0, 1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        share.finish(folder, [share.write(folder)])
        with torch.device("meta" if IS_CPU else DEVICE):  # a program's default device
            state = DcpFiles().read(edl.Checkpoint(folder, 1, 1, {}), share.extra)
    for key, tensor in before.items():
        assert (state.arrays[f"model/{key}"] == tensor.numpy()).all(), key


def schedules_continue() -> None:
    """Of a newcomer, whichever way it gets the state: the rates are those of the others."""
    schedules = torch.optim.lr_scheduler
    kinds: tuple[Callable[[Any], Any], ...] = (
        lambda own: schedules.MultiStepLR(own, [3, 5, 5]),
        lambda own: schedules.SequentialLR(
            own, [schedules.LinearLR(own, 0.1, total_iters=2), schedules.MultiStepLR(own, [2])], [2]
        ),
        lambda own: schedules.ChainedScheduler([schedules.MultiStepLR(own, [3])]),
        lambda own: schedules.OneCycleLR(own, 1.0, 9),
        lambda own: schedules.CyclicLR(own, 0.1, 1.0, 2),
    )

    def replica_of(kind: Callable[[Any], Any]) -> tuple[TorchReplica, Any]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 1.0, momentum=0.9)
        return TorchReplica(
            ModelSetup(model=model, optimizer=optimizer, scheduler=kind(optimizer))
        ), optimizer

    for kind in kinds:
        for in_parts in (False, True):
            (old, rates), (new, own_rates) = replica_of(kind), replica_of(kind)
            old.step(1.0)
            if in_parts:
                old.groups()
                new.load_rest(old.rest())
            else:
                new.load(old.state())
            for _ in range(6):
                old.step(1.0)
                new.step(1.0)
                assert own_rates.param_groups[0]["lr"] == rates.param_groups[0]["lr"]


FACTS = (
    training_continues_from_a_checkpoint,
    members_write_parts_and_others_read_them,
    the_books_go_back_with_the_model,
    a_disk_that_is_full_is_named_and_costs_no_step,
    a_checkpoint_that_lacks_a_part_is_not_taken,
    only_tensors_are_read,
    parts_that_are_gone_are_named,
    states_of_all_types_are_kept,
    copies_are_those_of_their_step,
    schedules_continue,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    check(FACTS)
