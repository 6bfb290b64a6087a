"""Quotas of the policy count what runs, whatever the Job's template says."""

from typing import Any

import pytest

from kube import request
from kube.request import PODS
from policy.names import Tier
from tests.reconciler import admission
from tests.reconciler.world import Process, World

_POLICY = """
reserve: {maxLoad: {}}
quotas: [{namespace: ml, requests: {cpu: "10"}}]
"""
_WITHOUT_REQUESTS: dict[str, Any] = {
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
}


def test_a_template_without_requests_does_not_escape_a_quota() -> None:
    """The namespace's LimitRange gives each trainer 5 CPU: two are 10 CPU."""
    world = World(100, policy=_POLICY)
    process = Process(world)
    world.api.admission.append(admission.limit_range("5"))
    world.add_job("net", 1, 10, template=_WITHOUT_REQUESTS)
    process.run(20)
    process.stop()

    assert len(world.running("net")) == 2


def test_trainers_that_are_resized_in_place_do_not_escape_a_quota() -> None:
    """Two of 2 CPU that their owner makes 4 leave room for one of five; surplus above goes."""
    world = World(100, policy=_POLICY)
    process = Process(world)
    world.add_job("net", 1, 10, cpu=2)
    process.run(20)
    before = world.running("net")
    for pod in before[:2]:
        resized = [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]
        world.ask(request.merge_patch(PODS, "ml", pod.name, {"spec": {"containers": resized}}))
    process.run(30)
    process.stop()

    assert len(before) == 5
    assert sum(pod.requests["cpu"] for pod in world.running("net")) <= 10_000


@pytest.mark.parametrize("low", [1, 3])
def test_a_resource_quota_full_of_surplus_lets_the_next_minimum_start(low: int) -> None:
    """Without a quota in the policy: the API server's refusal says what is lacking, and surplus goes."""
    world = World(100)
    process = Process(world)
    world.api.admission.append(admission.resource_quota(world.api, cpu=30))
    world.add_job("first", 1, 10)
    process.run(20)
    before = len(world.running("first"))
    world.add_job("second", low, 10)
    process.run(60)
    process.stop()

    guaranteed = [pod for pod in world.running("second") if pod.tier is Tier.GUARANTEED]
    assert before == 6
    assert len(guaranteed) == low
    assert len(world.running("first")) >= 6 - low


def test_a_quota_with_room_for_a_part_of_a_minimum_lets_it_start_after_its_pause() -> None:
    """The API server takes two of four trainers, which go again; then surplus makes room for all."""
    world = World(100)
    process = Process(world)
    world.api.admission.append(admission.resource_quota(world.api, cpu=30))
    world.add_job("first", 1, 4)
    process.run(20)
    world.add_job("second", 4, 4)
    process.run(240)
    process.stop()

    assert len(world.running("second")) == 4
    assert len(world.running("first")) == 2
