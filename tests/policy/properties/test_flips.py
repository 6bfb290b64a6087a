"""A job that changes what it asks for again and again, beside others that change nothing."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.cluster.snapshot import Job
from policy.document.model import Policy
from tests.support.builders import job, node
from tests.support.simulate import ROUND_S, Cluster
from tests.support.strategies import CALM, THOROUGH

_HOUR = int(3600 / ROUND_S)
"""Rounds."""
_SLOTS = 20
"""Trainers that the cluster has room for."""
_FEW = 4
_NAMESPACE = "restless"


class Flips:
    """A full cluster on which one job changes, and the trainers of other jobs that ended for it."""

    def __init__(self, random: Random, others: int, policy: Policy) -> None:
        self.random = random
        self.policy = policy
        owners = [job(f"j{i}", 1, _SLOTS, namespace=f"quiet-{i}") for i in range(others)]
        self.key = f"{_NAMESPACE}/a"
        self.cluster = Cluster(
            [node(f"n{i}", 25) for i in range(_SLOTS // 5)],
            [*owners, job("a", 1, _SLOTS, namespace=_NAMESPACE)],
        )
        self.cluster.settle(policy, 100)
        self.most = _SLOTS - others
        """The number of trainers that it could have while the others have their minimums."""
        self.lost: list[int] = []
        """Trainers of the others that ended, in each round."""
        self.given: list[int] = []
        """Those of them that ended for the restless job, and not for another one."""

    def flip(self) -> None:
        """Changes something of it at random, mostly to an extreme."""
        current: Job = self.cluster.jobs[self.key]
        low, high = sorted(
            (self.random.choice([1, 1, 2, 6, 14]), self.random.choice([1, _SLOTS, _SLOTS]))
        )
        changes: list[dict[str, Any]] = [
            {"weight": 1000 if current.weight == 1 else 1},
            {"suspended": not current.suspended},
            {"min_trainers": low, "max_trainers": high},
            {"sizes": self.random.choice([(), (1, 11)])},
        ]
        self.cluster.jobs[self.key] = replace(current, **self.random.choice(changes))

    def round(self) -> None:
        """One round of 30 s."""
        before = {uid for uid, pod in self.cluster.pods.items() if pod.node and not pod.deleting}
        new_plan = self.cluster.round(self.policy)
        lost = {
            uid
            for uid in before
            if not uid.startswith("a-")
            and (uid not in self.cluster.pods or self.cluster.pods[uid].deleting)
        }
        to_others = {r.uid for r in new_plan.releases if r.figures.get("to", self.key) != self.key}
        self.lost.append(len(lost))
        self.given.append(len(lost - to_others))


def _worst_hour(counts: list[int]) -> int:
    """The largest sum within an hour."""
    return max(sum(counts[i : i + _HOUR]) for i in range(len(counts)))


@settings(CALM, max_examples=200 if THOROUGH else 3)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([1, 2, 4, 8]))
def test_others_lose_in_an_hour_what_the_job_could_have_at_one_time_and_a_few(
    seed: int, others: int, every: int
) -> None:
    """However often it changes weight, suspend, minimum, maximum and sizes.

    Moves among the others that follow are fewer than those.
    """
    policy = Policy.model_validate({"reserve": {"maxLoad": {}}, "stability": {"maxMoves": 1.0}})
    flips = Flips(Random(seed), others, policy)  # noqa: S311 - a seed makes a failure repeatable
    for number in range(2 * _HOUR):
        if number % every == 0:
            flips.flip()
        flips.round()

    assert _worst_hour(flips.given) <= flips.most + _FEW
    assert _worst_hour(flips.lost) <= 2 * (flips.most + _FEW)
