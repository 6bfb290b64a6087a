"""Jobs of queues that come first: within each tier, and no guaranteed trainer gives way."""

from dataclasses import replace

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Admission, AdmissionOrder, Policy, Reserve, Stability
from policy.document.queue_model import Queue, Quota
from policy.names import Tier
from policy.planning.plan import Head, History, Line, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, trainers

_QUEUES = (
    Queue(name="first", namespaces=("*",), priority=10),
    Queue(name="second", namespaces=("*",), priority=1),
)
_POLICY = Policy(reserve=Reserve(max_load={}), queues=_QUEUES, stability=Stability(max_moves=1.0))
_FIRST = job("first", 1, 6, cpu=1, queue="first", created_s=NOW_S - 10.0)
_SECOND = job("second", 1, 6, cpu=1, queue="second")
_LAST = job("last", 1, 6, cpu=1)
_EIGHT = [node("n0", 8)]


def _plan(
    jobs: list[Job],
    pods: list[Pod],
    policy: Policy = _POLICY,
    nodes: list[Node] = _EIGHT,
    line: Line | None = None,
) -> Plan:
    history = History(line=line or Line())
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _targets(new_plan: Plan) -> dict[str, int]:
    return {job_plan.key.removeprefix("ml/"): job_plan.target for job_plan in new_plan.jobs}


def test_minimums_of_the_highest_priority_start_first() -> None:
    """Where there is room for one alone; without priority it is the oldest."""
    jobs = [replace(owner, min_trainers=5) for owner in (_FIRST, _SECOND, _LAST)]

    assert _targets(_plan(jobs, []))["first"] >= 5
    unranked = _POLICY.model_copy(update={"queues": ()})
    assert _targets(_plan(jobs, [], unranked))["first"] == 0


def test_surplus_goes_to_the_highest_priority_first() -> None:
    """All that it can use; then to the next, whatever the shares."""
    assert _targets(_plan([_FIRST, _SECOND, _LAST], [])) == {"first": 6, "second": 1, "last": 1}
    small = replace(_FIRST, max_trainers=2)
    assert _targets(_plan([small, _SECOND, _LAST], [])) == {"first": 2, "second": 5, "last": 1}


def test_surplus_moves_to_a_higher_priority_and_never_back() -> None:
    """From the lowest first, down to its minimum; guaranteed trainers stay."""
    pods = [
        *trainers(_FIRST, ["n0"]),
        *trainers(_SECOND, ["n0"] * 3),
        *trainers(_LAST, ["n0"] * 4),
    ]

    new_plan = _plan([_FIRST, _SECOND, _LAST], pods)

    assert _targets(new_plan) == {"first": 1, "second": 1, "last": 1}
    assert [release.job for release in new_plan.releases] == ["ml/last"] * 3 + ["ml/second"] * 2
    assert {release.reason for release in new_plan.releases} == {Reason.FAIR_SHARE}
    full = [
        *trainers(_FIRST, ["n0"] * 6),
        *trainers(_SECOND, ["n0"]),
        *trainers(_LAST, ["n0"]),
    ]
    assert _plan([_FIRST, _SECOND, _LAST], full).empty


def test_moves_to_a_higher_priority_keep_the_pace() -> None:
    """No more at one time than of equal priority."""
    pods = [*trainers(_FIRST, ["n0"]), *trainers(_LAST, ["n0"] * 7)]
    slow = _POLICY.model_copy(update={"stability": Stability(max_moves=0.25)})

    assert len(_plan([_FIRST, _LAST], pods, slow).releases) == 2


def test_a_share_is_equal_among_jobs_of_one_priority() -> None:
    """As without priorities."""
    twin = replace(_FIRST, name="twin", uid="twin")

    targets = _targets(_plan([_FIRST, twin, _LAST], []))

    assert sorted(targets.values()) == [1, 3, 4]
    assert targets["last"] == 1


def test_a_higher_priority_does_not_wait_for_the_claims_of_a_lower_one() -> None:
    """A namespace whose part is under way keeps room for its jobs from poorer ones alone."""
    elsewhere = replace(_LAST, namespace="other", max_trainers=40, weight=9)
    first = replace(_FIRST, max_trainers=12)

    targets = _targets(_plan([first, elsewhere], [], nodes=[node("n0", 14)]))

    assert targets["first"] + targets["other/last"] <= 14
    assert targets["first"] >= 7


def test_surplus_of_the_lowest_priority_restores_the_reserve() -> None:
    """Though its share is the smallest."""
    policy = _POLICY.model_copy(update={"reserve": Reserve(max_load={"cpu": 0.5})})
    pods = [*trainers(_FIRST, ["n0"] * 5), *trainers(_LAST, ["n0"] * 2)]

    released = [release.job for release in _plan([_FIRST, _LAST], pods, policy).releases]

    assert released[0] == "ml/last"


def test_in_strict_order_a_higher_priority_starts_on_held_nodes() -> None:
    """The line is by priority and then by age; a younger job of the same priority waits."""
    policy = _POLICY.model_copy(
        update={"admission": Admission(order=AdmissionOrder.STRICT_FIFO, after_seconds=1.0)}
    )
    busy = job("busy", 1, 1, cpu=6, queue="second")
    big = job("big", 1, 1, cpu=8, queue="second", created_s=NOW_S - 50.0)
    line = Line({big.uid: NOW_S - 40.0}, Head(big.key, big.uid, NOW_S - 30.0))
    first, later = (
        replace(owner, min_trainers=1, max_trainers=1, created_s=NOW_S)
        for owner in (_FIRST, _SECOND)
    )

    new_plan = _plan([busy, big, first, later], trainers(busy, ["n0"]), policy, line=line)

    created = [create.job for create in new_plan.creates if create.tier is Tier.GUARANTEED]
    assert created == ["ml/first"]


def test_a_quota_gives_way_to_a_higher_priority_by_moves() -> None:
    """The minimum of the lower one stays."""
    quota = Quota(namespace="ml", requests={"cpu": "4"})
    policy = _POLICY.model_copy(update={"quotas": (quota,)})
    pods = [*trainers(_FIRST, ["n0"]), *trainers(_LAST, ["n0"] * 3)]

    assert _targets(_plan([_FIRST, _LAST], pods, policy)) == {"first": 1, "last": 1}
