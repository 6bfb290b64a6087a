"""The SDK with the real master: whole jobs, and masters that die in the middle of them."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import edl
import pytest

from lab.fake_api import FakeApi
from master.fence import ConfigMapFence
from tests.master.serving import TOKEN, Served

RECORDS = 480


class Site:
    """A job's masters, one after another at one port."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self._directory = directory
        self._limits = limits
        self._api = FakeApi()
        self._pods = 0
        self.served = self._serve(0)
        self.members: list[edl.Session] = []

    def join(self, trainer: str) -> edl.Session:
        """A trainer's session, which leaves after the test."""
        url = f"http://127.0.0.1:{self.served.port}"
        self.members.append(edl.Session(edl.Settings(url, TOKEN, trainer, patience_s=60.0)))
        return self.members[-1]

    def restart(self) -> None:
        """Killed, and started again with its journal."""
        self.served.kill()
        self.served = self._serve(self.served.port)

    def take_over(self) -> None:
        """The pod is gone with its journal: another one has the snapshot only."""
        self.served.kill()
        self._pods += 1
        self.served = self._serve(self.served.port)

    def _serve(self, port: int) -> Served:
        name = f"pod-{self._pods}"
        fence = ConfigMapFence(self._api, "ml", "digits-master", name)
        folder = self._directory / name
        return Served(folder, port=port, fence=fence, heartbeat_s=1.0, **self._limits)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Everything ends with the test."""
    new_site = Site(tmp_path)
    yield new_site
    for member in new_site.members:
        member.leave()
    new_site.served.kill()


def _all(acts: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_one_trainer_exports_after_all_have_trained(site: Site) -> None:
    """The others wait until it has; then the job is done."""
    trained: Counter[int] = Counter()
    exported: list[str] = []

    def train(name: str) -> None:
        member = site.join(name)
        export = edl.Export(member=member)
        for batch in edl.batches(edl.from_function("train", int, 60), 5, member=member):
            trained.update(batch)
        export.run(lambda: exported.append(f"{name} {len(trained)}"))

    _all([lambda name=name: train(name) for name in ("trainer-0", "trainer-1")])  # type: ignore[misc]
    status = site.members[0].control().status()

    assert len(exported) == 1
    assert exported[0].endswith(" 60")
    assert status["state"] == "done"


def test_an_evaluation_is_summed_up_by_the_master(site: Site) -> None:
    """Means over all records, for the model version that was asked for."""
    member = site.join("trainer-0")
    held_out = edl.from_function("test", int, 40)
    assert list(edl.batches(held_out, 10, kind="evaluation", epochs=0, member=member)) == []
    edl.ask_evaluation(held_out, 3, member=member)
    loop = edl.batches(held_out, 10, kind="evaluation", epochs=0, member=member)
    for batch in loop:
        assert loop.model_version == 3
        loop.report(mean=sum(batch) / len(batch))
    evaluation = edl.evaluation(3, member=member)["rounds"][0]

    assert evaluation["complete"]
    assert (evaluation["records"], evaluation["metrics"]["mean"]) == (40, 19.5)
    with pytest.raises(edl.Refused, match="version 9"):
        edl.evaluation(9, member=member)


def _writing(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "model").write_text(text)


def test_a_checkpoint_that_was_saved_late_is_not_shown_as_the_newest(
    site: Site, tmp_path: Path
) -> None:
    """Its ticket is over, because a later one was used: the status still shows the later one."""
    member, home = site.join("trainer-0"), tmp_path / "kept"

    def write(folder: Path) -> None:
        edl.save_checkpoint(home, _writing("new"), step=64, member=member)
        (folder / "model").write_text("old")

    edl.save_checkpoint(home, write, step=8, member=member)

    newest = edl.latest_checkpoint(home)
    shown = site.served.service.status()["checkpoint"]
    assert newest is not None
    assert (newest.step, shown["step"], shown["path"]) == (64, 64, str(newest.path))


def test_a_record_that_cannot_be_read_is_in_the_status(site: Site) -> None:
    """With its number; the job is done without its task."""

    def read(number: int) -> int:
        if number == 13:
            raise ValueError("no such image")
        return number

    member = site.join("trainer-0")
    data = edl.from_function("train", read, 40)
    trained = [n for batch in edl.batches(data, 5, task_records=5, member=member) for n in batch]
    status = member.control().status()

    assert set(range(40)) - set(trained) == {10, 11, 12, 13, 14}
    assert "record 13: ValueError: no such image" in str(status["failures"])
    assert status["datasets"]["train"]["dropped_tasks"] == 1


def test_an_endless_stream_ends_with_the_jobs_steps(tmp_path: Path) -> None:
    """Numbers continue until all trainers together have made the maximal number of steps."""
    site = Site(tmp_path, max_steps=20)
    member = site.join("trainer-0")
    data = edl.from_function("stream", int, None)
    trained = [n for batch in edl.batches(data, 2, task_records=4, member=member) for n in batch]
    member.leave()
    site.served.kill()

    assert trained[:40] == list(range(40))
    assert len(trained) < 80


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))]
)
def test_masters_that_die_lose_no_record(site: Site, seed: int) -> None:
    """Restarts from the journal and takeovers from the snapshot, while three trainers train."""
    chance = random.Random(seed)  # noqa: S311 - the same in every run
    trained: Counter[int] = Counter()
    over = threading.Event()

    def train(name: str) -> None:
        data = edl.from_function("train", int, RECORDS)
        for batch in edl.batches(data, 3, task_records=6, epochs=2, member=site.join(name)):
            over.wait(0.01)
            trained.update(batch)

    def disturb() -> None:
        for _ in range(4):
            over.wait(chance.uniform(0.05, 0.3))
            chance.choice([site.restart, site.take_over])()

    _all([disturb, *(lambda name=f"trainer-{i}": train(name) for i in range(3))])
    member = site.join("trainer-9")
    status = member.control().status()
    wasted = sum(session.lease_table.counts.wasted for session in site.members)

    assert status["datasets"]["train"]["done_records"] == 2 * RECORDS
    assert set(trained) == set(range(RECORDS))
    assert min(trained.values()) >= 2
    again = sum(trained.values()) - 2 * RECORDS
    assert again <= wasted + status["trained_again_records"]


def test_storage_that_is_away_for_a_moment_costs_no_record(site: Site) -> None:
    """Twenty reads fail one after the other, whatever the task: it was the end of the job before."""
    errors = iter([OSError(116, "Stale file handle")] * 20)
    records: list[int] = []

    def read(number: int) -> int:
        for error in errors:
            raise error
        return number

    source = edl.from_function("train", read, 120)
    for batch in edl.batches(source, 4, task_records=4, member=site.join("trainer-0")):
        records += batch

    status = site.served.service.status()
    assert sorted(records) == list(range(120))
    assert (status["state"], status["dropped"]) == ("done", [])
    assert "OSError" in status["failures"][0]["error"]
