"""Four trainers of a PaddlePaddle model on a real node, every step made together.

Services take the place of two for a while. The others train on without a restart, the lead stays
where it is, every record is trained exactly once an epoch, and a picture in build/together shows it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.journey import Journey, World, journey, until
from e2e.together import lives, picture
from e2e.together.lives import LEFT, Life, Step
from e2e.together.lookout import Seen, lookout
from e2e.together.picture import Scene
from e2e.together.stage import SHARED, data, services, stage, stay, submit
from kube import request
from kube.request import PODS
from policy.names import LABEL_TRAINER_ID
from policy.snapshot import Phase
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

JOB = "digits"
LOW, HIGH = 1, 4
"""With one guaranteed trainer, services may take any two of three, and the leader is one of them."""
SERVICES, SERVICE_CPU = 2, "500m"
"""Two trainers of the four must go before both services have room on two cores."""
EPOCHS, RECORDS, BATCH, MICRO_BATCHES, PAUSE_S = 30, 1437, 64, 4, 0.06
WORDS = (
    *("--data", f"{SHARED}/digits-train.npz", "--evaluate", f"{SHARED}/digits-test.npz"),
    *("--evaluate-every", "1000000", "--epochs", str(EPOCHS), "--batch-size", str(BATCH)),
    *("--micro-batches", str(MICRO_BATCHES), "--seed", "1"),
)
BEFORE_S, BURST_S = 8.0, 12.0
START_S = 240.0
"""Four imports of PaddlePaddle on two cores, at most."""
CHANGE_S = 3.0
"""The bar: from a change of members to the next step."""
STOP_S = 2.0
GOOD = 0.9
"""Of the images that nobody trained on."""
PARTS = 6
_PICTURE = Path("build/together/sync.png")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node of two cores, and EDL beside it."""
    with stage(tmp_path_factory.mktemp("sync")) as world:
        yield world


@pytest.fixture
def here(site: World) -> Iterator[Journey]:
    """A namespace of the journey's own."""
    with journey(site, JOB) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Run:
    """What the run was like."""

    lives: list[Life]
    steps: list[Step]
    seen: Seen
    burst: tuple[float, float]
    services_s: float
    """From their creation until both ran."""
    restarts: dict[str, int]
    """Of containers, by trainer, of those that were there at the end."""

    @property
    def taken(self) -> list[Life]:
        """Those who had to go for the services; a finished job stops trainers, too."""
        begun_s, ended_s = self.burst
        return [life for life in self.lives if begun_s <= (life.sigterm_s or 0.0) <= ended_s]

    @property
    def stayed(self) -> list[Life]:
        """Those who were there before the services and until the end."""
        first = [life for life in self.lives if life.start_s < self.burst[0]]
        return [life for life in first if life not in self.taken]

    def changed_s(self) -> float:
        """From the last SIGTERM to the first step of those who stay, alone."""
        gone_s = max(life.sigterm_s or 0.0 for life in self.taken)
        alone = HIGH - len(self.taken)
        return next(s.at_s for s in self.steps if s.at_s > gone_s and s.world == alone) - gone_s

    def back_s(self) -> float:
        """From the services' end to the first step of all."""
        freed_s = self.burst[1]
        return next(s.at_s for s in self.steps if s.at_s > freed_s and s.world == HIGH) - freed_s

    def pause_s(self) -> float:
        """The longest time without a step, from the services' coming to the end."""
        return lives.longest_pause_s(self.steps, self.burst[0], self.steps[-1].at_s)

    def speed(self, world: int) -> float:
        """Records a second with so many members."""
        steps = [step for step in self.steps if step.world == world]
        return sum(step.records for step in steps) / sum(step.seconds for step in steps)


def _train(here: Journey, shared: Path) -> Run:
    """A job whose capacity services want for a while."""
    data("digits", shared)
    with lookout(here, JOB, shared) as seen:
        submit(here, JOB, WORDS, shared, trainers=(LOW, HIGH), example="digits", pause_s=PAUSE_S)
        until("all train", lambda: lives.at_work(shared), lambda count: count == HIGH, START_S)
        stay(BEFORE_S)
        begun_s = clock.epoch_s()
        with services(here, SERVICES, SERVICE_CPU):
            services_s = here.wait_services(SERVICES, 60)
            stay(begun_s + BURST_S - clock.epoch_s())
            ended_s = clock.epoch_s()
        until(
            "all train again", lambda: lives.at_work(shared), lambda count: count == HIGH, START_S
        )
        restarts = _restarts(here)
        until("the job is over", lambda: here.job(JOB).finished, bool, 300)
    found = lives.read(shared)
    return Run(found, lives.together(found), seen, (begun_s, ended_s), services_s, restarts)


def _restarts(here: Journey) -> dict[str, int]:
    """How often containers were restarted, by trainer."""
    pods = here.world.send(request.list_page(PODS, here.namespace))["items"]
    return {
        f"trainer-{pod['metadata']['labels'][LABEL_TRAINER_ID]}": sum(
            status["restartCount"] for status in pod["status"].get("containerStatuses", ())
        )
        for pod in pods
        if LABEL_TRAINER_ID in pod["metadata"]["labels"]
    }


def _accuracy(shared: Path) -> float:
    """Of the last model, as the leader's last line says."""
    printed = "".join(path.read_text() for path in shared.glob("*.log"))
    found = re.search(r"evaluation of step \d+: loss [\d.e-]+, accuracy ([\d.]+)", printed)
    assert found is not None, printed
    return float(found[1])


def test_services_take_two_of_four_and_the_others_train_on(
    here: Journey, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Never the leader; without a restart; nothing is lost or trained twice; two come back."""
    run = _train(here, tmp_path / "shared")
    leader = run.seen.leader(run.burst[0])
    accuracy = _accuracy(tmp_path / "shared")
    books, status = run.seen.status["datasets"]["training"], run.seen.status
    two, four = run.speed(HIGH - SERVICES), run.speed(HIGH)
    scene = Scene(
        f"PaddlePaddle, synchronous: {HIGH} trainers on a real node, services take two for "
        f"{BURST_S:.0f} s",
        run.lives,
        run.steps,
        run.seen.looks,
        run.burst,
    )
    picture.draw(_PICTURE, scene)
    report(
        f"services ran after {run.services_s:.1f} s; last SIGTERM to a step of two "
        f"{run.changed_s():.2f} s; room to a step of four {run.back_s():.1f} s; longest time without "
        f"a step {run.pause_s():.2f} s; {len(run.steps)} steps, {four:.0f} records/s with four, "
        f"{two:.0f} with two; accuracy {accuracy:.3f}; loss {run.steps[-1].loss:.4f}; "
        f"picture {_PICTURE}"
    )

    assert len(run.taken) == SERVICES
    assert leader not in [life.name for life in run.taken]
    assert run.seen.leader(run.steps[-1].at_s) == leader
    assert {life.code for life in run.taken} == {LEFT}
    assert max(life.stop_s or 0.0 for life in run.taken) <= STOP_S
    assert run.changed_s() <= CHANGE_S
    assert run.pause_s() <= CHANGE_S
    assert accuracy >= GOOD
    assert [len(life.pids) for life in run.lives] == [1] * (HIGH + SERVICES)
    assert {run.restarts[life.name] for life in run.stayed} == {0}
    # a trainer of a finished job that takes more than 5 s to end is told to
    assert {life.code for life in run.lives if life not in run.taken} <= {0, LEFT}
    falls = lives.means(run.steps, PARTS)
    assert falls == sorted(falls, reverse=True)
    assert lives.disagreements(run.lives) == []
    assert [step.number for step in run.steps] == list(range(1, len(run.steps) + 1))
    assert sum(step.records for step in run.steps) == EPOCHS * RECORDS
    assert books["done_records"] == EPOCHS * RECORDS
    assert books["dropped_records"] == 0
    assert (status["lost_records"], status["trained_again_records"]) == (0, 0)
    assert status["setbacks"]["count"] == 0
    reasons = {c.type: c.reason for c in here.job(JOB).status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"
    assert [pod for pod in here.trainers(JOB) if pod.phase is Phase.FAILED] == []
