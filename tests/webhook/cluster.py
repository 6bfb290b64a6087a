"""A cluster in memory with what the webhook deals with, for tests of its I/O."""

from pathlib import Path
from typing import Any

import orjson
import yaml

from kube import request
from lab.fake_api import FakeApi
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from policy.priority_classes import EDL_CLASSES

ROOT = Path(__file__).parents[2]
KINDS = {
    "MutatingWebhookConfiguration": request.MUTATINGWEBHOOKS,
    "ValidatingWebhookConfiguration": request.VALIDATINGWEBHOOKS,
}


def registrations() -> list[dict[str, Any]]:
    """The webhook configurations as they are deployed."""
    text = (ROOT / "deploy" / "base" / "webhook-configuration.yaml").read_text()
    return list(yaml.safe_load_all(text))


def with_registrations() -> FakeApi:
    """A cluster in which they are installed."""
    api = FakeApi()
    for registration in registrations():
        api.send(request.create(KINDS[registration["kind"]], None, registration))
    return api


def with_classes() -> FakeApi:
    """A cluster that has our PriorityClasses."""
    api = FakeApi()
    for name, values in EDL_CLASSES.items():
        body = {
            "metadata": {"name": name},
            "value": values.value,
            "preemptionPolicy": values.preemption_policy,
        }
        api.send(request.create(request.PRIORITYCLASSES, None, body))
    return api


def read(api: FakeApi, kind: request.Resource, name: str, namespace: str | None = None) -> Any:
    """An object as it is in the cluster now."""
    return orjson.loads(api.send(request.get(kind, namespace, name)))


def put_policy(api: FakeApi, text: str) -> None:
    """Creates the policy ConfigMap."""
    body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": {POLICY_KEY: text}}
    api.send(request.create(request.CONFIGMAPS, SYSTEM_NAMESPACE, body))


def patch_policy(api: FakeApi, data: dict[str, str | None]) -> None:
    """Changes its keys."""
    changed = request.merge_patch(
        request.CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, {"data": data}
    )
    api.send(changed)


def delete_policy(api: FakeApi) -> None:
    """Takes it away."""
    api.send(request.delete(request.CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
