from collections.abc import Iterator

import pytest

from kube import request
from kube.fake import FakeApi
from policy.mutation import EDL_CLASSES, PriorityClass
from policy.names import SYSTEM_NAMESPACE
from tests.webhook.cluster import put_policy, with_classes
from tests.webhook.waiting import until
from webhook.live import Live


@pytest.fixture
def api() -> FakeApi:
    """A cluster with our classes."""
    return with_classes()


@pytest.fixture
def live(api: FakeApi) -> Iterator[Live]:
    """What follows it."""
    followed = Live(api, SYSTEM_NAMESPACE)
    followed.start()
    until(lambda: followed.synced)
    yield followed
    followed.stop()


def test_state_has_the_live_classes(live: Live) -> None:
    """Value and preemptionPolicy are those of the cluster."""
    assert live.state().classes == EDL_CLASSES
    assert live.state().namespace == SYSTEM_NAMESPACE


def test_classes_are_followed(api: FakeApi, live: Live) -> None:
    """A class that comes, changes or goes is known at once."""
    body = {"metadata": {"name": "normal"}, "value": 5, "globalDefault": True}
    api.send(request.create(request.PRIORITYCLASSES, None, body))
    until(lambda: "normal" in live.state().classes)
    found = live.state().classes["normal"]
    api.send(request.delete(request.PRIORITYCLASSES, None, "normal"))
    until(lambda: "normal" not in live.state().classes)

    assert found == PriorityClass(5, "PreemptLowerPriority", is_default=True)


def test_policy_is_followed(api: FakeApi, live: Live) -> None:
    """A new policy decides the next review, under its own version."""
    before = live.state().version
    put_policy(api, "tiers: {graceSeconds: 4}")
    until(lambda: live.state().policy.tiers.grace_seconds == 4)

    assert live.state().version != before


@pytest.mark.parametrize("there", ["configmaps", "priorityclasses"])
def test_one_first_list_is_not_enough(there: str, api: FakeApi) -> None:
    """Without the classes every one seems to be missing; without the policy another rules."""
    followed = Live(api, SYSTEM_NAMESPACE)
    followed.reflectors[there].start()
    until(lambda: followed.reflectors[there].synced)
    synced = followed.synced
    followed.reflectors[there].stop()

    assert not synced


def test_before_the_first_list_nothing_is_synced(api: FakeApi) -> None:
    """Without start there is a default state, and it says that it is not the cluster's."""
    followed = Live(api, SYSTEM_NAMESPACE, "edl:1")

    assert followed.state().master_image == "edl:1"
    assert not followed.synced
    assert followed.state().classes == {}
