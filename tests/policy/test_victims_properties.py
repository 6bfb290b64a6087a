"""What holds for every choice of victims, on nodes that are drawn at random."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus, tier_rank
from policy.cluster.snapshot import Job, Node, Pod
from policy.names import Tier
from policy.planning.victims import Candidate, Promise, choose
from tests.policy.choices import A, B
from tests.support.builders import cluster_state, node, service, shape, support, trainer
from tests.support.simulate import free_beside, propose
from tests.support.strategies import CALM, Case, cases


def _proposals(preemptor: Pod, cluster: ClusterState) -> list[Candidate]:
    return [c for name in sorted(cluster.nodes) for c in propose(preemptor, name, cluster)]


def _guaranteed(cluster: ClusterState, choice: Candidate) -> int:
    victims = (cluster.pods[uid] for uid in choice.uids)
    return sum(tier_rank(pod) == 1 and not pod.deleting for pod in victims)


def _ranked(tier: Tier | None, owner: Job, name: str, cpu: int) -> Pod:
    """A waiting pod of a rank that preempts; None for a service's."""
    if tier is None:
        return service(name, cpu)
    if tier is Tier.SUPPORT:
        return support(owner, name, cpu=cpu)
    return replace(trainer(owner, 0, tier=tier, requests=shape(cpu)), name=name, uid=f"uid-{name}")


_RANKS = st.sampled_from([None, Tier.SUPPORT, Tier.GUARANTEED])


@st.composite
def _crowded(draw: st.DrawFn) -> tuple[Pod, ClusterState]:
    """A preemptor, and two nodes full of training to which other waiting pods are nominated."""
    size = st.tuples(st.sampled_from(Tier), st.integers(1, 5), st.integers(0, 6))
    nodes: list[Node] = []
    pods: list[Pod] = []
    for name in ("n0", "n1"):
        sizes = draw(st.lists(size, min_size=1, max_size=5))
        nodes.append(node(name, sum(cpu for _, cpu, _ in sizes) + draw(st.integers(0, 2))))
        for tier, cpu, state in sizes:
            owner = draw(st.sampled_from([A, B]))
            pod = trainer(owner, len(pods), name, tier, requests=shape(cpu), deleting=state == 0)
            pods.append(pod)
    for number in range(draw(st.integers(0, 3))):
        pod = _ranked(draw(_RANKS), B, f"before-{number}", draw(st.integers(1, 4)))
        pods.append(replace(pod, nominated=draw(st.sampled_from(["n0", "n1"]))))
    preemptor = _ranked(draw(_RANKS), A, "new", draw(st.integers(1, 9)))
    return preemptor, cluster_state(nodes, [A, B], pods)


@CALM
@given(_crowded())
def test_a_choice_frees_enough_beside_those_that_come_first(case: tuple[Pod, ClusterState]) -> None:
    """The preemptor fits once all pods nominated to the node, of its rank or above, have come."""
    preemptor, cluster = case
    choice = choose(preemptor, _proposals(preemptor, cluster), cluster)
    assume(choice is not None)
    assert choice is not None

    free = free_beside(preemptor, choice.node, cluster)
    leaving = {uid: pod for uid, pod in cluster.bound[choice.node].items() if pod.deleting}
    for pod in (leaving | {uid: cluster.pods[uid] for uid in choice.uids}).values():
        amounts.add(free, pod.requests)
    assert amounts.within(preemptor.requests, free)


@CALM
@given(_crowded(), st.lists(st.booleans(), min_size=10, max_size=10), st.integers(1, 5))
def test_a_choice_takes_nobody_of_its_rank_or_above(
    case: tuple[Pod, ClusterState], promised: list[bool], cpu: int
) -> None:
    """Even where the room that lower ones can make is promised to somebody else."""
    preemptor, cluster = case
    bound = [pod for name in ("n0", "n1") for pod in cluster.bound[name].values()]
    lower = [pod.uid for pod, yes in zip(bound, promised, strict=False) if yes and is_surplus(pod)]
    promises = [Promise("uid-x", name, shape(cpu), 0, frozenset(lower)) for name in ("n0", "n1")]

    choice = choose(preemptor, _proposals(preemptor, cluster), cluster, promises)

    victims = [cluster.pods[uid] for uid in choice.uids] if choice else []
    assert all(pod.priority < preemptor.priority for pod in victims if not pod.deleting)


@CALM
@given(cases(), st.integers(1, 20))
def test_a_choice_is_never_worse_than_the_schedulers_own(case: Case, cpu: int) -> None:
    """On no node more guaranteed trainers die than kube-scheduler would have taken there."""
    cluster = ClusterState.of(case.snapshot)
    preemptor = service("preemptor", cpu)
    for proposal in _proposals(preemptor, cluster):
        choice = choose(preemptor, [proposal], cluster)
        assert choice is not None
        assert _guaranteed(cluster, choice) <= _guaranteed(cluster, proposal)
