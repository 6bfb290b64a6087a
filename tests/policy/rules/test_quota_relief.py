"""Surplus of a namespace gives way to a minimum that its ResourceQuota refuses."""

from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, Pod, ServerSpec
from policy.document.model import Policy, Reserve
from policy.names import Tier
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, shape, trainer, trainers

_OLD, _OTHER = job("old", 1, 10), job("other", 1, 10)
_STRANGER = job("stranger", 1, 10, namespace="shop")


def _refusal(used: str, limited: str, name: str = "cpu") -> str:
    text = f"requested: {name}=5, used: {name}={used}, limited: {name}={limited}"
    return f'403: pods "x" is forbidden: exceeded quota: team, {text}'


def _new(used: str = "30", limited: str = "30", **fields: object) -> Job:
    return replace(job("new", 2, 4), refusal=_refusal(used, limited), **fields)  # type: ignore[arg-type] # fields of Job


def _plan(new: Job, history: History | None = None, pods: tuple[Pod, ...] = ()) -> Plan:
    """A quota of 30 CPU that four trainers of one job and two of another fill, with room on the node."""
    running = [*trainers(_OLD, ["n0"] * 4), *trainers(_OTHER, ["n0"] * 2)]
    running += trainers(_STRANGER, ["n0"] * 9)
    state = cluster_state([node("n0", 200)], [_OLD, _OTHER, _STRANGER, new], [*running, *pods])
    return plan(state, Policy(reserve=Reserve(max_load={})), NOW_S, history)


def _released(new_plan: Plan) -> list[str]:
    assert {release.reason for release in new_plan.releases} <= {Reason.QUOTA_REACHED}
    return sorted(release.uid for release in new_plan.releases)


@pytest.mark.parametrize(
    ("used", "limited", "released"),
    [
        ("30", "30", ["old-002", "old-003"]),
        ("30", "35", ["old-003"]),
        ("35", "25", ["old-002", "old-003"]),
        ("30", "40", []),
    ],
)
def test_as_much_goes_as_the_minimum_lacks(used: str, limited: str, released: list[str]) -> None:
    """Of the largest share in the namespace, and of nobody else's. No surplus is added there meanwhile."""
    new_plan = _plan(_new(used, limited))

    assert _released(new_plan) == released
    assert new_plan.quota_reliefs == ({"uid-new"} if released else frozenset())
    grown = {create.job for create in new_plan.creates}
    assert grown == ({"shop/stranger"} if released else {"ml/old", "ml/other", "shop/stranger"})
    for release in new_plan.releases:
        assert release.detail == "ml/new starts first within the same quota"


def test_nothing_goes_where_all_surplus_is_too_little() -> None:
    """Other pods fill the quota, or it is smaller than the minimum."""
    assert _released(_plan(_new(min_trainers=5, max_trainers=5))) == []


@pytest.mark.parametrize(
    "refusal", ["pods are forbidden: violates PodSecurity", _refusal("3", "3", "configmaps")]
)
def test_other_refusals_release_nothing(refusal: str) -> None:
    """No trainer's end would help."""
    assert _released(_plan(replace(_new(), refusal=refusal))) == []


def test_only_what_has_some_of_it_goes() -> None:
    """A quota on GPUs is not relieved by trainers without one, however large their share."""
    new = replace(job("new", 1, 1), requests=shape(5, gpus=1))
    new = replace(new, refusal=_refusal("1", "1", "requests.nvidia.com/gpu"))
    gpu = trainer(_OTHER, 9, "n0", requests=shape(1, gpus=1))

    assert _released(_plan(new, pods=(gpu,))) == ["other-009"]


def test_parameter_servers_count_with_the_minimum() -> None:
    """They start together with the first trainers."""
    new = replace(_new(), servers=ServerSpec(2, shape(2.5)))

    assert _released(_plan(new)) == ["old-002", "old-003", "other-001"]


def test_no_further_surplus_goes_before_the_job_was_tried_again() -> None:
    """After one release two minutes pass, after the next four; for one minute none is added either."""
    soon = _plan(_new(), History(quota_reliefs={"uid-new": (1, NOW_S - 59)}))
    later = _plan(_new(), History(quota_reliefs={"uid-new": (1, NOW_S - 119)}))
    again = _plan(_new(), History(quota_reliefs={"uid-new": (1, NOW_S - 120)}))
    twice = _plan(_new(), History(quota_reliefs={"uid-new": (2, NOW_S - 239)}))

    assert [_released(p) for p in (soon, later, twice)] == [[], [], []]
    assert {create.job for create in soon.creates} == {"shop/stranger"}
    assert {create.job for create in later.creates} == {"ml/old", "ml/other", "shop/stranger"}
    assert len(_released(again)) == 2


def test_a_partial_start_counts_what_it_had_itself() -> None:
    """One of two was created, and is taken back: one of another job goes; none is added until the next try."""
    new = replace(_new(), refusal="")
    first = trainer(new, 0, "n0", Tier.GUARANTEED)
    words = _refusal("35", "35")
    backoff = CreationBackoff(1, NOW_S, NOW_S + 90, 0, words, partial=True)

    new_plan = _plan(new, History(creation_backoffs={new.uid: backoff}), (first,))
    tried = History(creation_backoffs={new.uid: backoff}, quota_reliefs={new.uid: (1, NOW_S - 100)})

    reasons = {release.uid: release.reason for release in new_plan.releases}
    assert reasons == {"new-000": Reason.START_REFUSED, "old-003": Reason.QUOTA_REACHED}
    assert {create.job for create in _plan(new, tried).creates} == {"shop/stranger"}
