"""What plans come to from an empty cluster, against the best there is.

The optimum is defined in `tests.support.optimum`. With one shape and equal nodes progressive
filling reaches it always. With several shapes it need not: a trainer placed earlier can block a
node for a shape that would fill it better, and trainers are not moved from node to node. How
often and how much is checked as measured.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster.snapshot import Job, Node
from policy.document.model import Policy
from tests.support.builders import job, node, service
from tests.support.optimum import Counts, most_filled, placeable
from tests.support.simulate import Cluster
from tests.support.strategies import CALM, THOROUGH

_ROUNDS = 150
_POLICIES = {
    by: Policy.model_validate(
        {
            "reserve": {"maxLoad": {}},
            "fairness": {"by": by},
            "stability": {"gainThreshold": 0.0, "maxMoves": 1.0},
        }
    )
    for by in ("dominantShare", "fulfilment")
}
_CASES = [100, pytest.param(900 if THOROUGH else 200, marks=pytest.mark.soak)]


def _shares(cluster: Cluster, by: str, counts: Counts) -> tuple[float, ...]:
    """The jobs' shares, the least first."""
    pairs = zip(cluster.jobs.values(), counts, strict=True)
    return tuple(sorted(_share(cluster, by, owner, count) for owner, count in pairs))


def _share(cluster: Cluster, by: str, owner: Job, count: int) -> float:
    """The measure of one job with `count` trainers."""
    span = max(1, owner.max_trainers - owner.min_trainers) * owner.weight
    fulfilment = (count - owner.min_trainers) / span
    share = cluster.state().share(owner, count, {})
    return round(fulfilment if by == "fulfilment" else share, 9)


def _best(cluster: Cluster, by: str) -> tuple[tuple[float, ...], int] | None:
    """Shares and number of trainers of the optimum; None where the minimums do not all fit."""
    owners = list(cluster.jobs.values())
    options = [
        counts
        for counts in placeable(cluster.nodes, owners)
        if all(n >= owner.min_trainers for n, owner in zip(counts, owners, strict=True))
    ]
    return max(((_shares(cluster, by, n), sum(n)) for n in options), default=None)


def _settled(nodes: list[Node], owners: list[Job], by: str) -> tuple[Cluster, Counts]:
    cluster = Cluster(nodes, owners)
    cluster.settle(_POLICIES[by], _ROUNDS)
    counts = cluster.counts()
    return cluster, tuple(counts[owner.key] for owner in owners)


@CALM
@given(
    st.integers(1, 4),
    st.integers(5, 20),
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=3
    ),
    st.sampled_from(sorted(_POLICIES)),
)
def test_with_one_shape_the_plan_is_exact(
    count: int, cpu: int, bounds: list[tuple[int, int, int]], by: str
) -> None:
    """Alike nodes: the least share is the largest possible, max-min, and no trainer is missing."""
    owners = [
        job(f"j{i}", low, low + surplus, weight=weight)
        for i, (low, surplus, weight) in enumerate(bounds)
    ]
    cluster, counts = _settled([node(f"n{i}", cpu) for i in range(count)], owners, by)

    best = _best(cluster, by)
    if best is not None:
        assert sum(counts) == best[1]
        assert _shares(cluster, by, counts)[0] == best[0][0]
        assert _is_max_min(cluster, by, counts)


def _is_max_min(cluster: Cluster, by: str, counts: Counts) -> bool:
    """Whether no trainer given to another job would raise a smaller share than it lowers.

    Among equal shares any job may get the odd last trainer: the policy gives it to the
    job that has the smallest fraction of its maximum.
    """
    owners = list(cluster.jobs.values())

    def share(at: int, added: int) -> float:
        return _share(cluster, by, owners[at], counts[at] + added)

    return all(
        share(giver, -1) <= share(taker, 0) + 1e-9
        for giver, owner in enumerate(owners)
        for taker, other in enumerate(owners)
        if counts[giver] > owner.min_trainers and counts[taker] < other.max_trainers
    )


def _random_case(random: Random) -> tuple[list[Node], list[Job]]:
    """Up to 4 nodes and 3 jobs of different shapes."""
    nodes = [
        node(f"n{i}", random.randint(4, 20), memory=random.choice([16, 32, 64]))
        for i in range(random.randint(1, 4))
    ]
    owners = []
    for i in range(random.randint(2, 3)):
        low = random.randint(1, 2)
        cpu, memory = random.choice([(5, 0), (4, 8), (2, 0), (3, 4), (1, 8)])
        owners.append(
            job(
                f"j{i}",
                low,
                random.randint(low, 8),
                cpu=cpu,
                memory=memory,
                weight=random.choice([1, 1, 2]),
            )
        )
    return nodes, owners


def measure(by: str, cases: int, seed: int) -> dict[str, float]:
    """How near plans come to the optimum on random clusters with several shapes."""
    random = Random(seed)  # noqa: S311 - a seed makes the figures repeatable
    total = same = least_same = 0
    gaps, filled = [], []
    while total < cases:
        nodes, owners = _random_case(random)
        best = _best(Cluster(nodes, owners), by)
        if best is None:
            continue
        cluster, counts = _settled(nodes, owners, by)
        shares = _shares(cluster, by, counts)
        total += 1
        same += shares == best[0]
        least_same += shares[0] >= best[0][0]
        gaps.append(best[0][0] - shares[0])
        filled.append(sum(counts) / best[1])
    return {
        "exact": same / total,
        "least": least_same / total,
        "worst_gap": max(gaps),
        "mean_filled": sum(filled) / total,
    }


@pytest.mark.timeout(0 if THOROUGH else 120)
@pytest.mark.parametrize("by", sorted(_POLICIES))
@pytest.mark.parametrize("cases", _CASES)
def test_with_several_shapes_the_plan_is_near(by: str, cases: int) -> None:
    """As often exact, and as near elsewhere, as was measured."""
    differences = measure(by, cases, 7)

    assert differences["exact"] >= EXACT, differences
    assert differences["least"] >= LEAST, differences
    assert differences["mean_filled"] >= FILLED, differences


EXACT, LEAST, FILLED = 0.91, 0.96, 0.99
"""Measured with 900 cases: exact 93 % (both measures), the least share as large as it can be in 98 %
(dominant share) and 97 % (fulfilment), 99.6 % of the trainers of the optimum on average."""


@pytest.mark.parametrize("nodes", [50, pytest.param(133, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 0)],
        [(5, 0), (4, 8)],
        [(5, 0), (4, 8), (2, 2), (3, 16)],
    ],
)
@pytest.mark.timeout(180)  # seconds of a core that others share
def test_large_clusters_are_packed(nodes: int, shapes: list[tuple[int, int]]) -> None:
    """At least 97 % of the CPU that any packing of these shapes could use is used."""
    random = Random(nodes)  # noqa: S311 - a seed makes the figures repeatable
    places = [node(f"n{i:03}", random.choice([16, 17.65, 18, 20])) for i in range(nodes)]
    pods = [
        service(f"s{i}", random.choice([0.5, 1, 2]), places[i].name) for i in range(0, nodes, 3)
    ]
    owners = [
        job(f"j{i:02}", 2, 60, cpu=cpu, memory=memory)
        for i in range(20)
        for cpu, memory in [shapes[i % len(shapes)]]
    ]
    cluster = Cluster(places, owners, pods)
    state = cluster.state()
    kinds = {tuple(sorted(state.free(place.name).items())) for place in places}
    distinct = [owner.requests for owner in owners[: len(shapes)]]
    weighed = [(requests, requests["cpu"]) for requests in distinct]
    best = {kind: most_filled(dict(kind), weighed) for kind in kinds}
    bound = sum(best[tuple(sorted(state.free(place.name).items()))] for place in places)

    cluster.settle(_POLICIES["dominantShare"], _ROUNDS)

    counts = cluster.counts()
    used = sum(counts[owner.key] * owner.requests["cpu"] for owner in owners)
    assert used >= 0.97 * bound, used / bound
