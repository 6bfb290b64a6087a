"""The script of the demo, played against an in-memory API server in virtual time."""

from collections import Counter
from dataclasses import dataclass, field, replace

import orjson
import pytest

from e2e.demo.script import Script, ScriptError
from e2e.demo.view import Scene
from e2e.measure.pods import Kind, PodView
from e2e.measure.record import Recorder
from e2e.workload import QUICK, SERVICES_NAMESPACE, Manifest, Scenario
from kube import request
from lab.fake_api import FakeApi
from policy.cluster.snapshot import Phase
from tests.e2e.runs import view

_SMALL = replace(
    QUICK,
    big_nodes=1,
    small_nodes=1,
    system_cpu_millis=1500,
    services=(3, 1, 4),
    step_s=5.0,
    pservers=1,
)


@dataclass
class _Narrator:
    """A view that remembers."""

    words: list[str] = field(default_factory=list)
    scenes: int = 0

    def tick(self, scene: Scene, now_s: float) -> None:
        """Counts."""
        assert now_s >= 0
        assert scene.title
        self.scenes += 1

    def say(self, text: str) -> None:
        """Remembers."""
        self.words.append(text)


class _World:
    """Time, and what controllers, scheduler and kubelets would do in it: pods after a second."""

    def __init__(self, *, room: int = 10_000) -> None:
        self.api = FakeApi()
        self.recorder = Recorder(self.clock_s)
        self._room = room
        self._now_s = 0.0
        self._pods: dict[str, PodView] = {}
        self._created = 0

    def clock_s(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and pods follow the Deployments."""
        before, self._now_s = self._now_s, self._now_s + seconds
        if int(before) == int(self._now_s):
            return
        desired: Counter[Kind] = Counter()
        for deployment in self._deployments():
            service = deployment["metadata"]["namespace"] == SERVICES_NAMESPACE
            kind = Kind.SERVICE if service else Kind.SYSTEM
            desired[kind] += deployment["spec"]["replicas"]
        for kind, count in desired.items():
            self._follow(kind, min(self._room, count))

    def _deployments(self) -> list[Manifest]:
        page = orjson.loads(self.api.send(request.list_page(request.DEPLOYMENTS)))
        items: list[Manifest] = page["items"]
        return items

    def _follow(self, kind: Kind, desired: int) -> None:
        pods = [pod for pod in self._pods.values() if pod.kind is kind]
        for pod in pods[desired:]:
            self.recorder.change(self._pods.pop(pod.uid), None)
        for _ in range(desired - len(pods)):
            self._created += 1
            pod = view(kind, uid=f"pod-{self._created}", node="node-000", phase=Phase.RUNNING)
            self._pods[pod.uid] = pod
            self.recorder.change(None, pod)


def _node(name: str, *, ready: bool) -> Manifest:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "18"}, "conditions": [condition]},
    }


def _script(
    world: _World, narrator: _Narrator, *, plain: bool, scenario: Scenario = _SMALL
) -> Script:
    return Script(
        world.api,
        world.recorder,
        scenario,
        narrator,
        plain=plain,
        clock_s=world.clock_s,
        sleep=world.sleep,
    )


def _names(world: _World, resource: request.Resource) -> set[str]:
    page = orjson.loads(world.api.send(request.list_page(resource)))
    return {item["metadata"]["name"] for item in page["items"]}


@pytest.mark.parametrize("plain", [True, False])
def test_a_whole_run_plays_every_plateau(plain: bool) -> None:
    """All objects are made, all steps taken, each plateau as long as it should be."""
    world, narrator = _World(), _Narrator()
    script = _script(world, narrator, plain=plain)
    script.prepare([_node("node-000", ready=True), _node("node-001", ready=True)])
    script.play()
    timeline = world.recorder.timeline({})
    assert [step.services for step in timeline.steps] == [3, 1, 4]
    assert timeline.plateau(1)[1] - timeline.plateau(1)[0] == pytest.approx(5.0, abs=0.1)
    assert timeline.end_s - timeline.plateau(2)[0] == pytest.approx(5.0, abs=0.1)
    assert list(timeline.submitted_s) == ["job-1", "job-2"]
    assert world.recorder.counts().at_work(Kind.SERVICE) == 4
    assert _names(world, request.JOBS) == (set() if plain else {"job-1", "job-2"})
    trainers = {"job-1-trainer", "job-2-trainer"}
    assert (trainers <= _names(world, request.REPLICASETS)) is plain
    assert script.scene.left_s == pytest.approx(0.0, abs=0.1)
    assert any("1 -> 4: all running after" in words for words in narrator.words)
    assert narrator.scenes > 10


def test_a_burst_that_gets_no_room_does_not_stop_the_run() -> None:
    """The plateau simply ends; the report will say "never"."""
    world, narrator = _World(room=3), _Narrator()
    script = _script(world, narrator, plain=False)
    script.prepare([])
    script.play()
    assert not any("all running after" in words for words in narrator.words)


def test_nodes_that_do_not_get_ready_end_the_run_with_a_reason() -> None:
    """The message counts the nodes and names the log to read."""
    world = _World()
    script = _script(world, _Narrator(), plain=False)
    with pytest.raises(ScriptError, match="0 of 1 nodes are ready; see kwok's log"):
        script.prepare([_node("node-000", ready=False)])


def test_services_that_do_not_start_end_the_run_with_a_reason() -> None:
    """Before training begins, the first plateau must be reached."""
    world = _World(room=2)
    script = _script(world, _Narrator(), plain=False)
    script.prepare([])
    with pytest.raises(ScriptError, match="starting 3 services: 2 of 3 run; see kube-scheduler"):
        script.play()
