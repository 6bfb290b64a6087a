"""What the API server makes of a trainer is known before one is created."""

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from kube import errors, request
from kube.request import Request
from policy.cluster.snapshot import Job
from reconciler.quarantine import Quarantine
from reconciler.trainers import probe as trainer_probe
from reconciler.trainers.probe import TrainerProbe
from tests.reconciler import admission, objects
from tests.reconciler.world import Process, World
from tests.support import builders


def _is_dry_run(api_request: Request) -> bool:
    return ("dryRun", "All") in api_request.query


def _known(process: Process, name: str = "net") -> Job:
    return process.loop._state_feed.cluster.jobs[f"ml/{name}"]  # noqa: SLF001 - what plans see


def test_an_injected_sidecar_makes_nothing_in_vain() -> None:
    """Three trainers of 5 CPU would fill a node of 15; with 100m more only two fit."""
    world = World(15, 15)
    process = Process(world)
    world.api.admission.append(admission.sidecar_injector())
    world.add_job("net", 1, 10)
    process.run(60)
    process.stop()

    assert len(world.running("net")) == 4
    assert len(world.api.pods_made) == 4
    assert _known(process).requests == {"cpu": 5100, "memory": 128 * 2**20, "pods": 1}


def test_a_limit_range_keeps_a_minimum_whole_or_nothing(world: World, process: Process) -> None:
    """Trainers without a request would all fit; with the range's default six do."""
    world.api.admission.append(admission.limit_range("5"))
    template: dict[str, Any] = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    }
    world.add_job("net", 7, 20, template=template)
    world.add_job("small", 2, 2, template=template)
    process.run(10)

    assert world.pods("net", ended=True) == []
    assert world.waiting()[:2] == ("True", "WaitingForRoom")
    assert "5 cpu" in world.waiting()[2]
    assert len(world.running("small")) == 2


def test_a_job_whose_trainers_would_be_refused_is_not_started(
    world: World, process: Process
) -> None:
    """The condition has the API server's words; no id is used up, and it starts when it may."""
    plugin = admission.pod_security("net")
    world.api.admission.append(plugin)
    world.add_job("net", 2, 4)
    process.run(30)
    refused = world.waiting()
    creations = [w for w in world.api.writes if w.path.endswith("/namespaces/ml/pods")]
    tries = len(world.api.dry_runs)
    next_id = world.job("net").accounting.next_id
    world.api.admission.remove(plugin)
    process.run(62)

    assert refused[:2] == ("True", "Refused")
    assert "violates PodSecurity" in refused[2]
    assert (creations, next_id) == ([], 0)
    assert tries <= 6
    assert len(world.running("net")) == 4
    assert world.waiting()[:2] == ("False", "Started")


@pytest.mark.parametrize(
    "error",
    [
        errors.Unavailable("timed out"),
        errors.KubeError('admission webhook "x" does not support dry run', status=400),
        errors.TooManyRequests("slow down", status=429),
    ],
)
def test_a_dry_run_that_fails_itself_stops_nothing(
    error: errors.KubeError, world: World, process: Process
) -> None:
    """The job starts in the same tick, and the dry run is rarely tried again."""
    world.api.fake.faults.fail_next(error, 999, match=_is_dry_run)
    world.add_job("net", 2, 4)
    process.round()
    created = len(world.pods("net"))
    process.run(60)

    assert created == 4
    assert len(world.api.dry_runs) <= 5


def test_without_a_dry_run_the_newest_trainer_shows_its_size() -> None:
    """The trainers of the first try are larger than their template; no more are made in vain."""
    world = World(15, 15)
    process = Process(world)
    world.api.fake.faults.fail_next(errors.Unavailable("timed out"), 999, match=_is_dry_run)
    world.api.admission.append(admission.sidecar_injector())
    world.add_job("net", 1, 10)
    process.run(20)
    made = len(world.api.pods_made)
    process.run(60)
    process.stop()

    assert len(world.running("net")) == 4
    assert len(world.api.pods_made) == made


def test_a_template_is_tried_once_and_again_after_ten_minutes(
    world: World, process: Process
) -> None:
    """A webhook that is installed later is noticed then."""
    world.add_job("net", 1, 4)
    process.run(10)
    at_first = len(world.api.dry_runs)
    world.api.admission.append(admission.sidecar_injector())
    world.clock.advance(600)
    process.run(3)

    assert (at_first, len(world.api.dry_runs)) == (1, 2)
    assert _known(process).requests["cpu"] == 5100


def test_a_template_is_read_once_while_its_job_grows(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trainer that starts changes the job, and none of them changes its template."""
    world.add_job("net", 1, 3)
    process.round()
    reads = 0
    shape_of = trainer_probe._shape  # noqa: SLF001 - how often is the fact

    def counted(spec: Mapping[str, Any]) -> trainer_probe.TrainerShape:
        nonlocal reads
        reads += 1
        return shape_of(spec)

    monkeypatch.setattr(trainer_probe, "_shape", counted)
    process.run(10)

    assert len(world.running("net")) == 3
    assert reads == 0


def test_the_size_of_trainers_that_are_gone_is_forgotten() -> None:
    """The injector is gone and the nodes are smaller: the job starts again after ten minutes."""
    world = World(10)
    process = Process(world)
    world.api.admission.append(admission.sidecar_injector("6"))
    world.add_job("net", 1, 4, cpu=4)
    process.run(5)
    large = [pod.requests["cpu"] for pod in world.running("net")]
    world.api.admission.clear()
    world.ask(request.delete(request.NODES, None, "n0"))
    for pod in world.pods("net"):
        world.remove(pod)
    world.ask(request.create(request.NODES, None, objects.node("m0", 9)))
    process.run(5)
    waits = world.pods("net") == []
    world.clock.advance(600)
    process.run(5)
    process.stop()

    assert (large, waits) == ([10_000], True)
    assert [pod.requests["cpu"] for pod in world.running("net")] == [4_000] * 2


def test_a_dry_run_that_became_smaller_counts_more_than_older_trainers(
    world: World, process: Process
) -> None:
    """They run on, and new ones are as small as they really are."""
    world.api.admission.append(admission.sidecar_injector())
    world.add_job("net", 2, 2)
    process.run(5)
    before = _known(process).requests["cpu"]
    world.api.admission.clear()
    world.clock.advance(600)
    process.run(3)

    assert (before, _known(process).requests["cpu"]) == (5_100, 5_000)


def test_refusals_while_a_job_fills_its_quota_do_not_delay_its_next_start(
    world: World, process: Process
) -> None:
    """Each refresh is refused while it runs; it starts again as soon as its trainers have ended."""
    world.api.admission.append(admission.quota(world.api, "net", pods=4))
    world.add_job("net", 4, 4)
    process.run(5)
    for _ in range(120):
        process.round()
        world.step(60)
    process.round()
    world.change_job("net", {"spec": {"suspend": True}})
    process.run(5)
    ended = world.pods("net")
    world.change_job("net", {"spec": {"suspend": False}})
    process.round()

    assert ended == []
    assert len(world.pods("net")) == 4


class _NeverDone(Executor):
    """Records what is sent; no answer ever comes."""

    def __init__(self) -> None:
        self.namespaces: list[str] = []

    def submit(self, _function: Any, /, *args: Any, **_: Any) -> Future[Any]:
        """The request stays unanswered."""
        self.namespaces.append(args[0].namespace)
        return Future()


def test_a_namespace_whose_dry_runs_hang_leaves_a_slot_for_others(world: World) -> None:
    """However many jobs it has; its own jobs wait for each other."""
    many = [builders.job(f"a{i:02}", namespace="hung") for i in range(50)]
    cluster = builders.cluster_state(jobs=many)
    pool = _NeverDone()
    probe = TrainerProbe(world.api, cluster, pool, Quarantine(cluster))
    probe.wait_s = 0.0
    probe.update(builders.NOW_S, 10)
    cluster.put_job(builders.job("z"))
    probe.update(builders.NOW_S, 10)

    assert sorted(pool.namespaces) == ["hung"] * 3 + ["ml"]


def test_a_job_that_is_gone_is_forgotten(world: World, process: Process) -> None:
    """Nothing piles up."""
    world.add_job("net", 1, 4)
    process.run(2)
    kept = len(process.loop.components.probe._findings)  # noqa: SLF001 - that nothing piles up is the fact
    world.ask(request.delete(request.JOBS, "ml", "net"))
    process.run(2)

    assert kept == 1
    assert process.loop.components.probe._findings == {}  # noqa: SLF001 - see above
