"""What docs/install.md and the overlays say of the manifests in deploy/."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_WORDS = {
    "pods/eviction": "evict",
    "jobs/status": "their status",
    "trainingjobs/status": "their status",
    "priorityclasses": "PriorityClasses",
    "trainingjobs": "TrainingJobs",
    "decisionlogs": "DecisionLogs",
    "rolebindings": "RoleBindings",
    "poddisruptionbudgets": "disruption budgets",
    "mutatingwebhookconfigurations": "registrations",
    "validatingwebhookconfigurations": "registrations",
    "configmaps": "policy|ConfigMap",
    "secrets": "Secret|certificate",
}
"""How the page names a kind, where that is not its plural with a capital letter or without its s."""
_NO_RIGHT_OF_THEIR_OWN = {"jobs/finalizers", "trainingjobs/finalizers"}


def _manifests() -> Iterator[dict[str, Any]]:
    paths = [*(ROOT / "deploy/base").glob("*.yaml"), *(ROOT / "deploy/components/page").glob("*")]
    for path in paths:
        yield from yaml.safe_load_all(path.read_text())


def _resources(account: str, kind: str) -> set[str]:
    """Kinds for which the roles of this kind and of the account's name have verbs."""
    return {
        resource
        for manifest in _manifests()
        if manifest["kind"] == kind and manifest["metadata"]["name"] == account
        for rule in manifest["rules"]
        for resource in rule["resources"]
    } - _NO_RIGHT_OF_THEIR_OWN


def _row(start: str) -> list[str]:
    text = (ROOT / "docs/install.md").read_text().partition("### What each server may do")[2]
    row = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return row.split("|")[2:4]


ROWS = [
    ("`edl-extender` |", "edl-extender"),
    ("`edl-webhook` |", "edl-webhook"),
    ("`edl-reconciler` |", "edl-reconciler"),
    ("`edl-page`,", "edl-page"),
    ("`edl-reconciler`, role `edl-reconciler-jobs` |", "edl-reconciler-jobs"),
]


@pytest.mark.parametrize(("start", "role"), ROWS, ids=[role for _, role in ROWS])
def test_the_page_names_all_that_an_account_may_touch(start: str, role: str) -> None:
    """In the columns for the whole cluster and for edl-system; an admin reads it before the roles."""
    for kind, cell in zip(("ClusterRole", "Role"), _row(start), strict=True):
        unnamed = {
            resource
            for resource in _resources(role, kind)
            if not re.search(_WORDS.get(resource, resource.removesuffix("s")), cell, re.IGNORECASE)
        }
        assert unnamed == set()


def test_a_drain_of_several_nodes_ends_one_replica_of_a_server_at_a_time() -> None:
    """Whatever an overlay or a value makes of their number: of three webhooks two stay."""
    budgets = [
        manifest["spec"] for manifest in _manifests() if manifest["kind"] == "PodDisruptionBudget"
    ]

    assert len(budgets) == 2
    assert [{**budget, "selector": {}} for budget in budgets] == [
        {"maxUnavailable": 1, "selector": {}}
    ] * 2


def test_what_trainers_wait_for_comes_back_on_a_full_cluster() -> None:
    """EDL's servers, and the scheduler of deploy/own-scheduler, have a priority above that of services."""
    paths = [
        *(ROOT / "deploy/base").glob("*.yaml"),
        *(ROOT / "deploy/own-scheduler").glob("*.yaml"),
    ]
    manifests = [m for path in paths for m in yaml.safe_load_all(path.read_text())]
    classes = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"].get("priorityClassName")
        for manifest in manifests
        if manifest.get("kind") == "Deployment"
    }

    assert classes == dict.fromkeys(
        ("edl-webhook", "edl-extender", "edl-reconciler", "edl-scheduler"), "edl-servers"
    )
