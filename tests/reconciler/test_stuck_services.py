"""Services that cannot run whatever capacity is free, beside elastic jobs."""

from typing import Any

import pytest

from tests.reconciler.world import Process, World

STUCK: list[dict[str, Any]] = [
    {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]},
    {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]
            }
        }
    },
]


@pytest.mark.parametrize(
    "spec",
    [STUCK[0], pytest.param(STUCK[1], marks=pytest.mark.soak)],
    ids=["claim", "anti-affinity"],
)
def test_they_cost_no_trainer_on_a_full_cluster(
    world: World, process: Process, spec: dict[str, Any]
) -> None:
    """kube-scheduler would not preempt for them either."""
    world.add_job("net", 1, 10)
    process.run(5)
    before = {pod.uid for pod in world.running("net")}
    world.add_services(20, 8, **spec)
    process.run(300)

    assert {pod.uid for pod in world.running("net")} == before
    assert len(before) == 6


@pytest.mark.parametrize("spec", STUCK, ids=["claim", "anti-affinity"])
def test_what_they_leave_free_is_in_use_again_soon(
    world: World, process: Process, spec: dict[str, Any]
) -> None:
    """Within 30 s; capacity is reserved for them only as long as they might take it."""
    world.add_services(20, 8, **spec)
    world.add_job("net", 1, 10)
    process.run(5)
    at_first = len(world.running("net"))
    process.run(25)

    assert at_first < 6
    assert len(world.running("net")) == 6


def test_a_service_that_can_run_after_all_still_gets_its_capacity(
    world: World, process: Process
) -> None:
    """Its claim comes when trainers have its place: kube-scheduler preempts one for it."""
    world.add_services(1, 8, **STUCK[0])
    world.add_job("net", 1, 10)
    process.run(60)
    victims = world.running("net")[-2:]
    for victim in victims:
        world.preempt(victim)
    process.run(30)

    assert len(world.running("net")) == 6
