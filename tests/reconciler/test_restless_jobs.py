"""A job that changes again and again, in the loop: others pay for its first changes alone."""

import pytest

from kube import errors
from kube.request import Request
from policy.names import ANNOTATION_WEIGHT
from tests.reconciler.world import Process, World

PLACES = 40


@pytest.fixture
def world() -> World:
    """Ten nodes, each with room for four trainers."""
    return World(*[20] * 10)


def _lost(process: Process, seconds: int) -> int:
    """Trainers of job b that have gone after some time."""
    before = {pod.uid for pod in process.world.running("b")}
    process.run(seconds)
    return len(before - {pod.uid for pod in process.world.running("b")})


def _weigh(process: Process, weight: int) -> None:
    annotations = {ANNOTATION_WEIGHT: str(weight)}
    process.world.change_job("a", {"metadata": {"annotations": annotations}})


def test_a_weight_that_goes_up_and_down_ends_trainers_of_others_once(
    world: World, process: Process
) -> None:
    """It has its share of the first change within two minutes; later ones bring a few."""
    for name in ("a", "b"):
        world.add_job(name, 1, PLACES)
    process.run(60)
    shared = len(world.running("a"))
    _weigh(process, 1000)
    first = _lost(process, 120)
    later = 0
    for _ in range(2):
        _weigh(process, 1)
        process.run(60)
        _weigh(process, 1000)
        later += _lost(process, 40)

    assert shared == PLACES // 2
    assert first >= PLACES // 2 - 2
    assert later <= 4


def _is_creation(sent: Request) -> bool:
    return sent.method == "POST" and sent.path.endswith("/pods") and not sent.query


def test_what_the_api_server_does_not_take_was_not_given(world: World, process: Process) -> None:
    """A user who changes a job while its trainers are refused has its minimum as soon as they are not."""
    world.add_job("b", 1, PLACES)
    process.run(60)
    refusal = errors.Forbidden("exceeded quota: small", status=403)
    world.api.fake.faults.fail_next(refusal, 999, match=_is_creation)
    world.add_job("a", 8, 12)
    for weight in (2, 3, 4, 5):
        _weigh(process, weight)
        process.run(30)
    begun = len(world.pods("a"))
    world.api.fake.faults.clear()
    process.run(75)

    assert (begun, len(world.pods("a"))) == (0, 8)
