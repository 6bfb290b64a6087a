from collections.abc import Iterator

import pytest

from kube import request
from lab.fake_api import FakeApi
from policy.names import SCHEDULING_CONFIGMAP, SYSTEM_NAMESPACE
from policy.priority_classes import EDL_CLASSES, PriorityClassValues
from policy.scheduling import Registration, SchedulerCheck
from tests.reconciler.waiting import until
from tests.webhook.cluster import put_policy, with_classes
from webhook.live_context import LiveContext


@pytest.fixture
def api() -> FakeApi:
    """A cluster with our classes."""
    return with_classes()


@pytest.fixture
def live(api: FakeApi) -> Iterator[LiveContext]:
    """A started context of the cluster."""
    followed = LiveContext(api, SYSTEM_NAMESPACE)
    followed.start()
    until(lambda: followed.synced)
    yield followed
    followed.stop()


def test_state_has_the_live_classes(live: LiveContext) -> None:
    """Value and preemptionPolicy are those of the cluster."""
    assert live.current().classes == EDL_CLASSES
    assert live.current().namespace == SYSTEM_NAMESPACE


def test_classes_are_followed(api: FakeApi, live: LiveContext) -> None:
    """A class that comes, changes or goes is known at once."""
    body = {"metadata": {"name": "normal"}, "value": 5, "globalDefault": True}
    api.send(request.create(request.PRIORITYCLASSES, None, body))
    until(lambda: "normal" in live.current().classes)
    priority_class = live.current().classes["normal"]
    api.send(request.delete(request.PRIORITYCLASSES, None, "normal"))
    until(lambda: "normal" not in live.current().classes)

    assert priority_class == PriorityClassValues(5, "PreemptLowerPriority", is_default=True)


def test_policy_is_followed(api: FakeApi, live: LiveContext) -> None:
    """A new policy decides the next review, under its own version."""
    before = live.current().version
    put_policy(api, "tiers: {graceSeconds: 4}")
    until(lambda: live.current().policy.tiers.grace_seconds == 4)

    assert live.current().version != before


def test_the_schedulers_check_is_followed(api: FakeApi, live: LiveContext) -> None:
    """Pods are marked as long as its result says so; without one they are not."""
    before = live.current().scheduling.marked
    check = SchedulerCheck(registration=Registration.REGISTERED)
    body = {"metadata": {"name": SCHEDULING_CONFIGMAP}, "data": check.to_data()}
    api.send(request.create(request.CONFIGMAPS, SYSTEM_NAMESPACE, body))
    until(lambda: live.current().scheduling.marked)
    api.send(request.delete(request.CONFIGMAPS, SYSTEM_NAMESPACE, SCHEDULING_CONFIGMAP))
    until(lambda: not live.current().scheduling.marked)

    assert not before


@pytest.mark.parametrize("resource", ["configmaps", "priorityclasses"])
def test_one_first_list_is_not_enough(resource: str, api: FakeApi) -> None:
    """Without the classes all seem to be missing; without the policy the default applies."""
    followed = LiveContext(api, SYSTEM_NAMESPACE)
    followed.reflectors[resource].start()
    until(lambda: followed.reflectors[resource].synced)
    synced = followed.synced
    followed.reflectors[resource].stop()

    assert not synced


def test_before_the_first_list_nothing_is_synced(api: FakeApi) -> None:
    """Before the start there is a default context, marked as not synced."""
    followed = LiveContext(api, SYSTEM_NAMESPACE, "edl:1")

    assert followed.current().master_image == "edl:1"
    assert not followed.synced
    assert followed.current().classes == {}


@pytest.mark.parametrize(
    ("containers", "image"),
    [
        ([{"name": "webhook", "image": "registry.example/edl:1"}], "registry.example/edl:1"),
        ([{"name": "proxy", "image": "x"}, {"name": "webhook", "image": "y"}], "y"),
        ([{"name": "proxy", "image": "x"}], ""),
        (None, ""),
    ],
)
def test_masters_run_in_the_image_of_the_webhook(
    containers: object, image: str, api: FakeApi
) -> None:
    """Whatever an overlay calls it; without one, Jobs with masters are refused."""
    body = {
        "metadata": {"name": "edl-webhook"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    api.send(request.create(request.DEPLOYMENTS, SYSTEM_NAMESPACE, body))
    followed = LiveContext(api, SYSTEM_NAMESPACE)
    followed.start()
    until(lambda: followed.reflectors["deployments"].synced)
    followed.stop()

    assert followed.current().master_image == image


def test_a_named_image_of_masters_stays(api: FakeApi) -> None:
    """What the settings name is not looked up."""
    assert "deployments" not in LiveContext(api, SYSTEM_NAMESPACE, "edl:1").reflectors


def test_without_any_valid_policy_the_context_is_not_usable(api: FakeApi) -> None:
    """A server that starts with an invalid one knows none, and must not decide by the default."""
    put_policy(api, "tears: 1")
    followed = LiveContext(api, SYSTEM_NAMESPACE)
    followed.start()
    until(lambda: followed.synced)
    followed.stop()

    assert not followed.current().usable
