"""What the ValidatingAdmissionPolicies of deploy/base name exists; e2e runs them on a real API server."""

import re
from pathlib import Path
from typing import Any

import yaml

from policy import names
from policy.priority_classes import EDL_CLASSES

BASE = Path(__file__).parents[2] / "deploy" / "base"
FILES = ("tenant-policies.yaml", "account-policies.yaml")


def documents(kind: str) -> dict[str, dict[str, Any]]:
    """Documents of one kind in deploy/base, by name."""
    texts = (path.read_text() for path in sorted(BASE.glob("*.yaml")))
    objects = [document for text in texts for document in yaml.safe_load_all(text)]
    return {
        document["metadata"]["name"]: document for document in objects if document["kind"] == kind
    }


def test_every_policy_denies_and_fails_closed() -> None:
    """A policy without a binding that denies is only a text."""
    policies = documents("ValidatingAdmissionPolicy")
    bindings = documents("ValidatingAdmissionPolicyBinding").values()

    assert {binding["spec"]["policyName"] for binding in bindings} == policies.keys()
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)
    assert all(policy["spec"]["failurePolicy"] == "Fail" for policy in policies.values())


def test_refusals_are_forbidden() -> None:
    """The reconciler takes a 422 without a field for a lost race, and would try again at once."""
    policies = documents("ValidatingAdmissionPolicy").values()

    assert all(
        validation["reason"] == "Forbidden" and validation["message"]
        for policy in policies
        for validation in policy["spec"]["validations"]
    )


def test_each_policy_concerns_a_named_account_or_selected_objects() -> None:
    """The first condition excludes what is not EDL's; accounts are those of deploy/base."""
    text = "".join((BASE / file).read_text() for file in FILES)
    users = set(re.findall(r"system:serviceaccount:([a-z-]+):([a-z-]+)", text))
    accounts = {
        (account["metadata"]["namespace"], name)
        for name, account in documents("ServiceAccount").items()
    }

    assert users
    assert users <= accounts
    assert all(
        policy["spec"]["matchConditions"]
        for policy in documents("ValidatingAdmissionPolicy").values()
    )


def test_names_in_the_expressions_are_those_that_edl_writes() -> None:
    """Annotations, labels, classes and the webhook's entry."""
    text = "".join((BASE / file).read_text() for file in FILES)
    written = set(re.findall(r"'(edl\.training/[a-z-]+)'", text))
    classes = set(re.findall(r"'(edl-(?:surplus|guaranteed|support)[a-z-]*)'", text))
    (pods,) = (
        policy
        for name, policy in documents("ValidatingAdmissionPolicy").items()
        if name == "edl-training-pods"
    )
    selector = pods["spec"]["matchConstraints"]["objectSelector"]

    assert written <= {*names.LABELS, *names.POD_ANNOTATIONS}
    assert classes == EDL_CLASSES.keys()
    assert selector == {"matchExpressions": [{"key": names.LABEL_ROLE, "operator": "Exists"}]}
    assert names.SCHEDULING_CONFIGMAP in text
