from typing import Any

import pytest
import yaml

from policy.priority_classes import EDL_CLASSES, PriorityClassValues
from tests.webhook.cluster import ROOT, registrations

ENTRIES = [
    (document["kind"], entry) for document in registrations() for entry in document["webhooks"]
]


@pytest.mark.parametrize(("kind", "entry"), ENTRIES)
def test_every_entry_fails_open_and_soon(kind: str, entry: dict[str, Any]) -> None:
    """A dead webhook blocks nothing, and a slow one not for long."""
    assert entry["failurePolicy"] == "Ignore"
    assert entry["timeoutSeconds"] <= 5
    assert entry["sideEffects"] == "None"
    assert entry["admissionReviewVersions"] == ["v1"]
    assert entry.get("reinvocationPolicy") == ("IfNeeded" if "Mutating" in kind else None)


@pytest.mark.parametrize(("kind", "entry"), ENTRIES)
def test_own_namespace_is_only_seen_for_the_policy(kind: str, entry: dict[str, Any]) -> None:
    """Pods and Jobs of kube-system and our own namespace never wait for us."""
    selector = entry["namespaceSelector"]
    if entry["name"] == "policy.webhook.edl.training":
        assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "edl-system"}}
        assert "Validating" in kind
    else:
        (expression,) = selector["matchExpressions"]
        assert expression["operator"] == "NotIn"
        assert {"kube-system", "edl-system"} <= set(expression["values"])


def test_shipped_classes_are_the_ones_we_write() -> None:
    """The manifest has the same values as dry runs and repairs."""
    text = (ROOT / "deploy" / "base" / "priority-classes.yaml").read_text()
    shipped = {
        document["metadata"]["name"]: PriorityClassValues(
            document["value"],
            document.get("preemptionPolicy", "PreemptLowerPriority"),
            document.get("globalDefault", False),
        )
        for document in yaml.safe_load_all(text)
    }

    del shipped["edl-servers"]  # of EDL's own pods
    assert shipped == EDL_CLASSES
