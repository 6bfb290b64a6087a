"""Random clusters whose policy changes: what a forecast says, beside what happens in virtual time."""

from collections import Counter
from random import Random

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Fairness, FairnessBy, Policy, Reserve, Sizes, Stability
from policy.document.queue_model import Quota
from policy.planning.forecast import Forecast
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from simulator.run import play
from simulator.workload import Arrival, Workload
from tests.support.builders import job, node, service

CHANGE_S = 120.0
END_S = 420.0
_NEW_S = 20.0
"""Within this time all jobs are submitted."""


def nodes(
    random: Random, fewest: int = 5, most: int = 20, cpus: tuple[int, ...] = (17, 18, 32)
) -> tuple[Node, ...]:
    """5 to 20 nodes of three sizes, unless other bounds are given."""
    sizes = random.choices(cpus, k=random.randint(fewest, most))
    return tuple(node(f"n{i:02}", size, memory=96) for i, size in enumerate(sizes))


def jobs(random: Random, most: int = 6) -> list[Job]:
    """2 to `most` jobs in three queues and two namespaces."""
    drawn = []
    for i in range(random.randint(2, most)):
        low = random.randint(1, 3)
        drawn.append(
            job(
                f"job-{i}",
                low,
                low + random.randint(2, 20),
                cpu=random.choice((2, 3, 4, 5)),
                memory=random.choice((0, 4)),
                namespace=random.choice(("ml", "lab")),
                queue=random.choice(("", "day", "night")),
                weight=random.choice((1, 1, 1, 2)),
            )
        )
    return drawn


def services(random: Random, cluster: tuple[Node, ...]) -> tuple[Pod, ...]:
    """Services that request up to two fifths of the CPU."""
    budget = random.uniform(0.0, 0.4) * sum(n.allocatable["cpu"] for n in cluster) / 1000
    pods: list[Pod] = []
    while budget > 0:
        cpu = random.choice((1, 2, 3, 6))
        pods.append(service(f"web-{len(pods):03}", cpu, priority=100))
        budget -= cpu
    return tuple(pods)


def policy(random: Random) -> Policy:
    """A policy that differs from the default in one to three places."""
    parts: dict[str, object] = {
        "reserve": Reserve(max_load={"cpu": random.choice((0.97, 0.9, 0.75, 0.6))}),
        "fairness": Fairness(
            by=random.choice(list(FairnessBy)),
            queue_weights=random.choice(({}, {"night": 3}, {"night": 2, "day": 5})),
        ),
        "quotas": (
            Quota(
                queue=random.choice(("night", "day")), requests={"cpu": str(random.randint(10, 60))}
            ),
        ),
        "sizes": (random.choice((Sizes(step=2), Sizes(powers_of_two=True))),),
        "stability": Stability(gain_threshold=random.choice((0.1, 0.5, 1.0)), max_moves=0.2),
    }
    chosen = random.sample(sorted(parts), random.randint(1, 3))
    return Policy().model_copy(update={name: parts[name] for name in chosen})


def case(seed: int) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """One random case.

    Returns:
        Job key -> trainers when the policy changes; by the forecast; in the end.
    """
    random = Random(seed)  # noqa: S311 - repeatable on purpose
    cluster, submitted = nodes(random), jobs(random)
    before, after = policy(random), policy(random)
    arrivals = (
        Arrival(0.0, pods=services(random, cluster)),
        *(Arrival(random.uniform(0.0, _NEW_S), job=each) for each in submitted),
        Arrival(CHANGE_S, policy=after),
    )
    inputs: list[PlanInput] = []

    def observe(plan_input: PlanInput, _: Plan) -> None:
        inputs.append(plan_input)

    play(Workload(cluster, arrivals, END_S), before, observe=observe)
    first_s = inputs[0].at_s - inputs[0].at_s % 86_400
    taken = [each for each in inputs if each.at_s - first_s < CHANGE_S][-1]
    forecast = Forecast(taken, after)
    forecast.settle()
    return counts(taken), _counts(forecast), counts(inputs[-1])


def counts(taken: PlanInput) -> dict[str, int]:
    """Job key -> trainers."""
    state = taken.cluster()
    return {key: len(state.trainers(each)) for key, each in state.jobs.items()}


def _counts(forecast: Forecast) -> dict[str, int]:
    state = forecast.cluster
    return {key: len(state.trainers(each)) for key, each in state.jobs.items()}


def worst(predicted: dict[str, int], happened: dict[str, int]) -> int:
    """By how many trainers the forecast is wrong about a job, at most."""
    difference = Counter(predicted)
    difference.subtract(happened)
    return max(map(abs, difference.values()))
