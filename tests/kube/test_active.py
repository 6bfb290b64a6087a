from collections.abc import Iterator

import pytest

from kube.active import ActivePolicy
from kube.decode import ConfigMap, configmap
from kube.reflector import Reflector
from kube.request import CONFIGMAPS
from lab.fake_api import FakeApi
from policy.document import parser as document
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from tests.reconciler.waiting import until
from tests.webhook.cluster import delete_policy, patch_policy, put_policy

GOOD = "tiers: {graceSeconds: 7}\n"
BETTER = "tiers: {graceSeconds: 8}\n"


@pytest.fixture
def api() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


def _reflector(api: FakeApi) -> Reflector[ConfigMap]:
    """A watch of the policy's ConfigMap."""
    return Reflector(api, CONFIGMAPS, configmap, namespace=SYSTEM_NAMESPACE, name=POLICY_CONFIGMAP)


@pytest.fixture
def active(api: FakeApi) -> Iterator[ActivePolicy]:
    """A policy that follows it, from the start."""
    reflector = _reflector(api)
    policy = ActivePolicy.of(reflector)
    reflector.start()
    until(lambda: reflector.synced)
    yield policy
    reflector.stop()


def _grace(active: ActivePolicy) -> int:
    return active.current.policy.tiers.grace_seconds


def test_without_configmap_the_default_rules(active: ActivePolicy) -> None:
    """A missing ConfigMap is not an error."""
    assert active.current.source == "default"
    assert active.current.details()["error"] == ""
    assert active.current.usable
    assert _grace(active) == 10


def test_good_document_comes_into_force(api: FakeApi, active: ActivePolicy) -> None:
    """A ConfigMap that appears and changes is followed, with its fingerprint."""
    put_policy(api, GOOD)
    until(lambda: _grace(active) == 7)
    patch_policy(api, {"policy.yaml": BETTER})
    until(lambda: _grace(active) == 8)

    assert active.current.version == document.fingerprint(BETTER)
    assert active.current.source == "configmap"
    assert active.current.labels()["stale"] == "false"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"policy.yaml": "tears: {}"}, "tears: unknown field"),
        ({"policy.yaml": None, "policy.yml": GOOD}, "has no key policy.yaml"),
    ],
)
def test_bad_document_changes_nothing(
    api: FakeApi, active: ActivePolicy, data: dict[str, str | None], error: str
) -> None:
    """The last good policy stays, and what is wrong is shown until it is mended."""
    put_policy(api, GOOD)
    until(lambda: _grace(active) == 7)
    patch_policy(api, data)
    until(lambda: active.current.error)
    grace_s, message, labels = _grace(active), active.current.error, active.current.labels()
    patch_policy(api, {"policy.yaml": GOOD})
    until(lambda: not active.current.error)

    assert grace_s == 7
    assert error in message
    assert labels == {
        "version": document.fingerprint(GOOD),
        "source": "configmap",
        "stale": "true",
    }


def test_deleted_configmap_changes_nothing(api: FakeApi, active: ActivePolicy) -> None:
    """A deletion is not meant to drop every quota; a new ConfigMap is activated."""
    put_policy(api, GOOD)
    until(lambda: _grace(active) == 7)
    delete_policy(api)
    until(lambda: active.current.error)
    grace_s, message = _grace(active), active.current.error
    put_policy(api, BETTER)
    until(lambda: _grace(active) == 8)

    assert grace_s == 7
    assert "is deleted: recreate it" in message


def test_bad_document_from_the_start_is_not_usable(api: FakeApi) -> None:
    """The default would drop quotas and protected namespaces; a document that is valid is used."""
    put_policy(api, "[]")
    reflector = _reflector(api)
    policy = ActivePolicy.of(reflector)
    reflector.start()
    until(lambda: policy.current.error)
    bad = policy.current
    patch_policy(api, {"policy.yaml": GOOD})
    until(lambda: not policy.current.error)
    good = policy.current
    patch_policy(api, {"policy.yaml": "[]"})
    until(lambda: policy.current.error)
    reflector.stop()

    assert (bad.source, bad.usable) == ("default", False)
    assert good.usable
    assert policy.current.usable
    assert _grace(policy) == 7
