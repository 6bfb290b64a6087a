"""kube-scheduler in virtual time, beside kubelets and without a reconciler."""

from dataclasses import replace

from policy.cluster.snapshot import Node, Phase, Pod
from policy.document.model import Policy, Stability
from policy.names import Tier
from simulator.clock import Clock
from simulator.cluster import DisruptionReason, PodChange, SimulatedCluster
from simulator.kubelet import SimulatedKubelets
from simulator.scheduler import SimulatedScheduler
from simulator.timing import Timing
from tests.support.builders import NOW_S, PRIORITIES, job, node, service, support, trainer

TIMING = Timing(bind_s=0.01, preempt_s=0.04, start_s=0.5, stop_s=1.0)


class _Site:
    """A cluster with kubelets and a scheduler, and all that changed."""

    def __init__(self, *nodes: Node, policy: Policy | None = None, extender: bool = True) -> None:
        self.clock = Clock(NOW_S)
        self.cluster = SimulatedCluster(self.clock, nodes)
        self.changes: list[PodChange] = []
        self.cluster.watch_pods(self.changes.append)
        SimulatedKubelets(self.cluster, TIMING)
        SimulatedScheduler(self.cluster, policy or Policy(), TIMING, extender=extender)

    def add(self, *pods: Pod) -> None:
        """Creates pods now."""
        for pod in pods:
            self.cluster.create(pod)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.run(self.clock.now_s + seconds)

    def node_of(self, pod: Pod) -> str | None:
        """Where a pod is, None where it is gone."""
        new_pod = self.cluster.state.pods.get(pod.uid)
        return None if new_pod is None else new_pod.node


def test_pods_are_bound_one_by_one_and_then_start() -> None:
    """Each takes the scheduler its time; a bound pod runs after the kubelet's."""
    site = _Site(node("n1", 18))
    first, second = service("a"), service("b")
    site.add(first, second)
    site.run(5.0)
    nodes = {
        (change.new.name, change.new.phase): change.at_s - NOW_S
        for change in site.changes
        if change.new is not None and change.new.node
    }
    assert {key: round(at_s, 3) for key, at_s in nodes.items()} == {
        ("a", Phase.PENDING): 0.01,
        ("b", Phase.PENDING): 0.02,
        ("a", Phase.RUNNING): 0.51,
        ("b", Phase.RUNNING): 0.52,
    }


def test_who_outranks_goes_first() -> None:
    """With room for one only, the pod of higher priority has it, although it came later."""
    owner = job("a")
    site = _Site(node("n1", 5))
    low, high = trainer(owner, 1), service("web", 5)
    site.add(low, high)
    site.run(1.0)
    assert (site.node_of(low), site.node_of(high)) == ("", "n1")


def test_training_packs_and_services_spread() -> None:
    """Training goes where it fragments least, a service where most is free."""
    owner = job("a")
    site = _Site(node("n1", 9), node("n2", 18))
    master, web = support(owner, "m", cpu=4), service("web", 4)
    site.cluster.submit(owner)
    site.add(master)
    site.run(1.0)
    assert site.node_of(master) == "n1"
    site.add(web)
    site.run(1.0)
    assert site.node_of(web) == "n2"


def test_a_service_preempts_surplus_and_moves_in_when_it_is_gone() -> None:
    """The victim is deleted, ends after its stop time, and then the pod is bound."""
    owner = job("a", low=1)
    site = _Site(node("n1", 5))
    site.cluster.submit(owner)
    victim, web = trainer(owner, 1), service("web", 5)
    site.add(victim)
    site.run(2.0)
    site.add(web)
    site.run(0.1)
    assert site.cluster.state.pods[victim.uid].deleting
    assert site.cluster.state.pods[web.uid].nominated == "n1"
    site.run(1.0)
    assert (site.node_of(victim), site.node_of(web)) == (None, "n1")
    whys = [change.disruption for change in site.changes if change.new is None]
    assert whys == [DisruptionReason.PREEMPTED]


def test_surplus_never_preempts_and_waits_for_somebody_to_leave() -> None:
    """It is not tried again and again; the room that a pod leaves wakes it."""
    owner = job("a")
    site = _Site(node("n1", 5))
    web, waiting = service("web", 5), trainer(owner, 1)
    site.add(web)
    site.run(1.0)
    site.add(waiting)
    site.run(60.0)
    before = len(site.changes)
    site.run(60.0)
    assert (site.node_of(waiting), len(site.changes)) == ("", before)
    site.cluster.stop(web.uid, DisruptionReason.EVICTED)
    site.run(2.0)
    assert site.node_of(waiting) == "n1"


def test_nobody_preempts_what_would_not_help() -> None:
    """A pod that fits nowhere even without training waits, and training stays."""
    owner = job("a")
    site = _Site(node("n1", 5))
    stays, huge = trainer(owner, 1), service("huge", 50)
    site.add(stays)
    site.run(2.0)
    site.add(huge)
    site.run(60.0)
    assert (site.node_of(stays), site.node_of(huge)) == ("n1", "")


def test_room_that_was_made_for_one_is_not_taken_by_others() -> None:
    """A trainer that fits beside the leaving victims stays off the nominated pod's room."""
    owner = job("a")
    site = _Site(node("n1", 10))
    site.cluster.submit(owner)
    site.add(trainer(owner, 1), trainer(owner, 2))
    site.run(2.0)
    web, late = service("web", 8), trainer(owner, 3)
    site.add(web)
    site.run(0.06)
    site.add(late)
    site.run(1.5)
    assert (site.node_of(web), site.node_of(late)) == ("n1", "")


def test_surplus_keeps_off_a_cooling_node_while_somebody_waits() -> None:
    """Room was made there for others; when nobody who outranks it waits, it may come."""
    owner = job("a")
    site = _Site(
        node("n1", 8), node("n2", 8), policy=Policy(stability=Stability(cool_down_seconds=600.0))
    )
    site.cluster.submit(owner)
    fill = [trainer(owner, number) for number in (1, 2)]
    site.add(*fill)
    site.run(2.0)
    web, huge = service("web", 5), service("huge", 50)
    site.add(web, huge)
    site.run(3.0)
    freed = site.node_of(web)
    site.cluster.stop(web.uid, DisruptionReason.EVICTED)
    late = trainer(owner, 3)
    site.add(late)
    site.run(3.0)
    assert site.node_of(late) == ""
    site.cluster.stop(huge.uid, DisruptionReason.EVICTED)
    other = trainer(owner, 4)
    site.add(other)
    site.run(3.0)
    assert site.node_of(other) == freed


def test_a_pod_that_is_told_to_stop_before_it_runs_never_runs() -> None:
    """Its containers are not started; it is gone after the stop time."""
    site = _Site(node("n1", 18))
    pod = service("a")
    site.add(pod)
    site.run(0.1)
    site.cluster.stop(pod.uid, DisruptionReason.EVICTED)
    site.cluster.stop(pod.uid, DisruptionReason.EVICTED)
    site.run(5.0)
    phases = [change.new.phase for change in site.changes if change.new is not None]
    assert set(phases) == {Phase.PENDING}
    assert site.node_of(pod) is None


def test_a_pod_that_was_withdrawn_while_its_turn_was_on_is_not_bound() -> None:
    """A waiting pod that is deleted is removed at once, also from the scheduler's queue."""
    site = _Site(node("n1", 18))
    pod = service("a")
    site.add(pod)
    site.clock.after(0.005, lambda: site.cluster.stop(pod.uid, DisruptionReason.EVICTED))
    site.run(1.0)
    assert site.node_of(pod) is None
    assert all(change.new is None or not change.new.node for change in site.changes)


def test_a_pod_that_goes_as_it_comes_leaves_the_scheduler_idle() -> None:
    """Nothing is left to decide when its turn comes, and the next pod is taken as always."""
    site = _Site(node("n1", 18))
    deleted, stays = service("a"), service("b")
    site.add(deleted)
    site.cluster.stop(deleted.uid, DisruptionReason.EVICTED)
    site.run(1.0)
    site.add(stays)
    site.run(1.0)
    assert (site.node_of(deleted), site.node_of(stays)) == (None, "n1")


def test_node_size_in_memory_may_be_unknown() -> None:
    """A node without CPU and memory in its status scores 0 and causes no error."""
    bare = replace(node("n1"), allocatable={"pods": 10})
    pod = replace(service("a"), requests={"pods": 1})
    site = _Site(bare)
    site.add(pod)
    site.run(1.0)
    assert site.node_of(pod) == "n1"


def test_without_the_extender_the_lowest_priority_and_then_the_youngest_is_preempted() -> None:
    """Whatever the shares of their jobs are; the extender would have chosen the job with two."""
    owner, rich = job("net"), job("rich")
    low_share = replace(
        trainer(owner, 0, "n1", started_s=NOW_S - 1), priority=PRIORITIES[Tier.SURPLUS] + 100
    )
    youngest = trainer(owner, 1, "n2", started_s=NOW_S - 5)
    older = [trainer(rich, n, f"n{n + 3}", started_s=NOW_S - 9) for n in range(2)]
    site = _Site(*(node(f"n{n}", 5) for n in range(1, 5)), extender=False)
    site.cluster.submit(owner)
    site.cluster.submit(rich)
    site.add(low_share, youngest, *older, service("web", 5))
    site.run(3.0)

    assert site.node_of(youngest) is None
    assert site.node_of(service("web", 5)) == "n2"


def test_without_the_extender_a_trainer_prefers_its_planned_node() -> None:
    """By affinity, though another is emptier; where the planned one is full, it takes the emptiest."""
    owner = job("net")
    first, second = (replace(trainer(owner, n), planned="n1") for n in range(2))
    site = _Site(node("n1", 5), node("n2", 18), extender=False)
    site.cluster.submit(owner)
    site.add(first, second)
    site.run(1.0)

    assert (site.node_of(first), site.node_of(second)) == ("n1", "n2")
