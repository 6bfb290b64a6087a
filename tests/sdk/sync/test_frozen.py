"""A trainer that stood still and comes back never takes its old model for the job's."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import edl
import numpy as np
import pytest
from edl import Session, Settings
from edl.data.checkpoints import latest_checkpoint
from edl.errors import RoundOver
from edl.sync import State, SyncResult, SyncStep
from edl.sync.group_member import GroupMember
from edl.sync.leader import Leader

from tests.master.serving import TOKEN, Served
from tests.sdk.support.loops import until
from tests.sdk.sync.crews import Crew, Trainer, Watched, done_records, kept_steps, meet, together
from tests.sdk.sync.lines import Line
from tests.sdk.sync.replicas import Softmax

STEPS, AT, LATER = 32, 6, 20
FLIGHT = AT + 1
"""A trainer that stood still may get as far as the step that the others had begun."""
_HANG_S = 60.0


class Freezer:
    """Trainers of a crew that can be made to stand still, with all their threads."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.lines: dict[Trainer, Line] = {}
        self._open: list[Line] = []
        self.frozen, self._thawed = threading.Event(), threading.Event()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def add(
        self, act: Callable[[Trainer, SyncStep], None] | None = None, name: str = ""
    ) -> Trainer:
        """Adds a trainer whose connections to the master can be cut."""
        line = Line(self._crew.master.port)
        self._open.append(line)
        name = name or f"trainer-{len(self._crew.trainers)}"
        settings = Settings(line.url, TOKEN, name, grace_s=5.0, patience_s=20.0)
        replica = Softmax(len(self._crew.trainers))
        trainer = self._crew.add(act, replica, name, member=Watched(settings))
        self.lines[trainer] = line
        return trainer

    def close(self) -> None:
        """Releases all trainers and closes their connections."""
        self._thawed.set()
        self.go_on.set()
        for trainer in self.lines:
            trainer.wait(_HANG_S)
        for line in self._open:
            line.close()

    # -- what trainers do at the end of a step -------------------------------------------------

    def freeze(self, trainer: Trainer, step: SyncStep) -> None:
        """Makes the trainer stand still at step `AT`, in a round of two."""
        if step.step == AT and not self.frozen.is_set():
            self.lines[trainer].cut()
            self.frozen.set()
            assert self._thawed.wait(_HANG_S)
            self.lines[trainer].mend()

    def among(
        self, world_size: int, act: Callable[[Trainer, SyncStep], None]
    ) -> Callable[[Trainer, SyncStep], None]:
        """Calls a function after each step, once the trainer has a round of that many members."""

        def both(trainer: Trainer, step: SyncStep) -> None:
            if step.step == 1:
                together(trainer, step, world_size)
            act(trainer, step)

        return both

    def wait(self, _: Trainer, step: SyncStep) -> None:
        """Waits at step `LATER` until `thaw`."""
        if step.step == LATER:
            self.reached.set()
            assert self.go_on.wait(_HANG_S)

    def die(self, trainer: Trainer, step: SyncStep) -> None:
        """Ends the trainer at step `LATER` like SIGKILL: nothing is reported to the master."""
        if step.step == LATER:
            until(lambda: done_records(self._crew.master) > 16 * 32)  # more than any checkpoint has
            self.lines[trainer].cut()
            raise RuntimeError("killed")

    def thaw(self) -> None:
        """Lets trainers that stand still continue."""
        self._thawed.set()


@pytest.fixture
def freezers() -> Iterator[list[Freezer]]:
    """Closed at the end, however a test ends."""
    made_freezers: list[Freezer] = []
    yield made_freezers
    for freezer in made_freezers:
        freezer.close()


def _freezer(freezers: list[Freezer], master: Served, **options: Any) -> tuple[Crew, Freezer]:
    crew = Crew(master, **options)
    freezers.append(Freezer(crew))
    return crew, freezers[-1]


def _pair(freezer: Freezer, rank: int, other: Callable[[Trainer, SyncStep], None]) -> list[Trainer]:
    """Two that train together; the one of this rank stands still, the other calls a function."""
    acts = [freezer.among(2, freezer.freeze if rank == place else other) for place in range(2)]
    members = []
    for act in acts:
        members.append(freezer.add(act))
        assert members[-1].began.wait(_HANG_S)
    assert freezer.frozen.wait(_HANG_S)
    return [members[rank], members[1 - rank]]


def _after_saving(
    folder: Path, step: int, act: Callable[[Trainer, SyncStep], None]
) -> Callable[[Trainer, SyncStep], None]:
    """Calls a function after each step, once the checkpoint of a step exists."""

    def later(trainer: Trainer, now: SyncStep) -> None:
        if now.step == step + 1:
            until(lambda: step in kept_steps(folder))
        act(trainer, now)

    return later


def _is_late(result: SyncResult) -> bool:
    assert result.whole
    return result.late


@pytest.mark.parametrize("rank", [0, 1])
def test_whoever_comes_back_when_the_others_have_ended_is_late(
    master: Served, tmp_path: Path, freezers: list[Freezer], rank: int
) -> None:
    """It has no trained model, makes no step and writes nothing; no rollback is reported."""
    _, freezer = _freezer(freezers, master, checkpoints=tmp_path, checkpoint_steps=10)
    frozen, other = _pair(freezer, rank, lambda *_: None)
    assert not _is_late(other.end())
    before = sorted(tmp_path.rglob("*"))

    freezer.thaw()

    assert _is_late(frozen.end())
    assert frozen.steps[-1].step in (AT, FLIGHT)
    assert kept_steps(tmp_path)[-1] == STEPS
    assert sorted(tmp_path.rglob("*")) == before
    status = master.service.status()
    assert (status["state"], status["setbacks"]["count"]) == ("done", 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_whoever_comes_back_while_the_others_train_goes_on_with_their_model(
    master: Served, tmp_path: Path, freezers: list[Freezer], rank: int
) -> None:
    """All end with the same weights, for either leader; each record counts once."""
    _, freezer = _freezer(freezers, master, checkpoints=tmp_path)
    frozen, other = _pair(freezer, rank, freezer.wait)
    assert freezer.reached.wait(_HANG_S)

    freezer.thaw()
    meet(other, 2)
    freezer.go_on.set()

    assert [_is_late(trainer.end()) for trainer in (frozen, other)] == [False, False]
    assert {step.step for step in frozen.steps}.isdisjoint(range(FLIGHT + 1, LATER + 1))
    assert isinstance(frozen.replica, Softmax)
    assert isinstance(other.replica, Softmax)
    assert np.array_equal(frozen.replica.weights, other.replica.weights)
    assert kept_steps(tmp_path)[-1] == STEPS
    assert done_records(master) == STEPS * 32
    assert master.service.status()["setbacks"]["count"] == 0


@pytest.mark.parametrize("ends", [True, False])
def test_one_that_was_alone_yields_to_a_newcomer_that_took_over(
    master: Served, tmp_path: Path, freezers: list[Freezer], *, ends: bool
) -> None:
    """The newcomer continued from the checkpoint; its model is the job's, with other steps."""
    crew, freezer = _freezer(freezers, master, checkpoints=tmp_path, checkpoint_steps=4)
    frozen = freezer.add(_after_saving(tmp_path, 4, freezer.freeze))
    assert freezer.frozen.wait(_HANG_S)
    newcomer = crew.add(None if ends else freezer.wait)
    if ends:
        assert not _is_late(newcomer.end())
        freezer.thaw()
        assert _is_late(frozen.end())
    else:
        assert freezer.reached.wait(_HANG_S)
        freezer.thaw()
        meet(newcomer, 2)
        freezer.go_on.set()
        assert [_is_late(trainer.end()) for trainer in (frozen, newcomer)] == [False, False]
        assert isinstance(frozen.replica, Softmax)
        assert isinstance(newcomer.replica, Softmax)
        assert np.array_equal(frozen.replica.weights, newcomer.replica.weights)
    assert newcomer.steps[0].step == 5
    assert kept_steps(tmp_path)[-1] == newcomer.end().steps
    assert done_records(master) == STEPS * 32


@pytest.mark.parametrize("with_checkpoints", [True, False])
def test_whoever_comes_back_when_all_others_are_lost_says_what_is(
    master: Served, tmp_path: Path, freezers: list[Freezer], *, with_checkpoints: bool
) -> None:
    """It continues from the newest checkpoint, or from its own state if that has more steps."""
    options: dict[str, Any] = (
        {"checkpoints": tmp_path, "checkpoint_steps": 8} if with_checkpoints else {}
    )
    _, freezer = _freezer(freezers, master, **options)
    die = _after_saving(tmp_path, 8, freezer.die) if with_checkpoints else freezer.die
    frozen, other = _pair(freezer, 1, die)
    assert "killed" in other.error_of()
    done = done_records(master)
    before, newest = max(step.round for step in other.steps), kept_steps(tmp_path)[-1:]

    freezer.thaw()

    assert not _is_late(frozen.end())
    first = min(step.step for step in frozen.steps if step.round > before) - 1
    assert first in (newest if with_checkpoints else (AT, FLIGHT))
    assert first > FLIGHT or not with_checkpoints
    setbacks = master.service.status()["setbacks"]
    assert setbacks["records"] == done - first * 32
    reason = f"all other trainers were lost: continuing from step {first}"
    assert [event["reason"] for event in setbacks["newest"]] == [reason]


class Doomed(Softmax):
    """Its process is killed as it is about to write the trained model."""

    def __init__(self) -> None:
        super().__init__(1)
        self.line: Line | None = None

    def state(self) -> State:
        """As in `Replica`."""
        if self.line is not None and len(self.scales) == STEPS:
            self.line.cut()
            raise RuntimeError("killed")
        return super().state()


def test_a_model_that_was_lost_with_its_last_trainer_fails_the_job(tmp_path: Path) -> None:
    """The export is still to be made, and the group's membership outlives its last trainer."""
    master = Served(tmp_path / "journal", heartbeat_s=30.0)
    line, doomed = Line(master.port), Doomed()
    crew = Crew(master, checkpoints=tmp_path / "kept")
    first = Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "exporter"))
    edl.Export(member=first)
    first.leave()
    doomed.line = line
    settings = Settings(line.url, TOKEN, "trainer-0", grace_s=5.0, patience_s=1.0)
    last = crew.add(None, doomed, "trainer-0", member=Session(settings))
    assert "killed" in last.error_of()
    assert "edl:group" in master.service.status()["trainers"]

    error = crew.add(name="trainer-0").error_of()

    assert error.startswith("TrainingError: the trained model was lost with all trainers")
    assert master.service.status()["state"] == "failed"
    line.close()
    master.stop()


def test_a_frozen_one_does_not_export_what_it_has_where_the_trained_model_is_lost(
    master: Served, freezers: list[Freezer]
) -> None:
    """The others trained to the end and ended before the export: the job fails."""
    _, freezer = _freezer(freezers, master)
    exporter = Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "exporter"))
    edl.Export(member=exporter)
    frozen, other = _pair(freezer, 1, lambda *_: None)
    assert not _is_late(other.end())
    exporter.leave()
    until(lambda: not master.service.status()["trainers"])

    freezer.thaw()

    text = frozen.error_of()
    assert text.startswith("TrainingError: the trained model was lost with all other trainers")
    assert any(f"newer than step {step}" in text for step in (AT, FLIGHT))
    assert master.service.status()["state"] == "failed"


# -- frozen while it saves -----------------------------------------------------------------------


class Save:
    """A checkpoint whose writing stands still between ticket and rename."""

    def __init__(self, folder: Path, member: Session, step: int) -> None:
        self._folder, self._member, self._step = folder, member, step
        self._writes, self._thawed = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._writes.wait(_HANG_S)

    def end(self) -> None:
        """Lets it continue to its end."""
        self._thawed.set()
        self._thread.join(_HANG_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            edl.save_checkpoint(self._folder, self._write, step=self._step, member=self._member)
        except edl.CheckpointError as error:
            self.error = error

    def _write(self, folder: Path) -> None:
        self._writes.set()
        assert self._thawed.wait(_HANG_S)
        (folder / "model").write_text("model", encoding="utf-8")


def _session(master: Served) -> Session:
    return Session(Settings(f"http://127.0.0.1:{master.port}", TOKEN, "saver"))


@pytest.mark.parametrize("saves", [True, False])
def test_whoever_is_replaced_while_it_saves_leaves_no_checkpoint(
    master: Served, tmp_path: Path, *, saves: bool
) -> None:
    """Whether or not the other one has saved since; the other one's checkpoint stays the newest."""
    old, new = _session(master), _session(master)
    slow = Save(tmp_path, old, 8)
    new.join()
    if saves:
        assert edl.save_checkpoint(tmp_path, {"w": np.zeros(2)}, step=64, member=new)

    slow.end()

    assert "another process has replaced this trainer" in str(slow.error)
    assert kept_steps(tmp_path) == ([64] if saves else [])
    for trainer in (old, new):
        trainer.leave()


def test_a_checkpoint_that_is_late_is_older_than_those_of_later_tickets(
    master: Served, tmp_path: Path
) -> None:
    """Its version is that of its ticket, whatever the folder holds by the time it is renamed."""
    old = _session(master)
    slow = Save(tmp_path, old, 8)
    assert edl.save_checkpoint(tmp_path, {"w": np.zeros(2)}, step=64, member=old)

    slow.end()

    newest = latest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 64
    assert slow.error is None  # the trainer has its place still: an older checkpoint may stay
    assert kept_steps(tmp_path) == [8, 64]
    old.leave()


def test_a_leader_that_was_told_of_another_asks_nobody() -> None:
    """Nothing more is done in this round, evaluations included, though no freeze was noticed."""
    leader = Leader.__new__(Leader)
    leader.replaced = True
    rendezvous = SimpleNamespace(stalled=lambda: False)
    member: Any = SimpleNamespace(leader=leader, rendezvous=rendezvous)

    with pytest.raises(RoundOver, match="another member leads by now"):
        GroupMember.confirm_leadership(member)
