"""What is read of an API server's audit log, and what of it a right counts as used by."""

import json
from dataclasses import replace
from typing import Any

import pytest

from e2e import rights, scheduling
from e2e.page import COMPONENT
from e2e.rights import Right
from e2e.scheduling import SchedulingMode

GET = Right("edl-webhook", "edl-system", "", "secrets", "get", "edl-webhook-tls")


def _event(right: Right, code: int = 200, **of: Any) -> str:
    """A line of the log."""
    resource, _, subresource = right.resource.partition("/")
    reference = {
        "apiGroup": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    event = {
        "user": {"username": f"system:serviceaccount:edl-system:{right.account}"},
        "verb": right.verb,
        "objectRef": {name: text for name, text in reference.items() if text},
        "responseStatus": {"code": code},
    }
    return json.dumps(event | of) + "\n"


def test_every_rule_of_the_manifests_is_a_right() -> None:
    """Of all accounts, with names and subresources, in EDL's namespace and everywhere."""
    page = scheduling.documents(COMPONENT / "page-rbac.yaml")
    every = rights.granted([*scheduling.manifests(SchedulingMode.EXTENDER), *page])

    assert GET in every
    assert Right("edl-reconciler", "", "", "pods/eviction", "create") in every
    assert Right("edl-extender", "", "batch", "jobs", "watch") in every
    assert {right.account for right in every} == set(rights.ACCOUNTS)


def test_a_right_is_used_by_its_own_request_alone() -> None:
    """Not by another account's, verb's, object's or namespace's."""
    others = [
        replace(GET, account="edl-extender"),
        replace(GET, verb="update"),
        replace(GET, name="other"),
        replace(GET, namespace="ml"),
        replace(GET, resource="secrets/status"),
        replace(GET, group="apps"),
    ]
    audited = rights.read("".join(map(_event, others)))

    assert rights.unused([GET], audited) == {GET}
    assert rights.unused([GET], [*audited, *rights.read(_event(GET))]) == set()


@pytest.mark.parametrize(
    ("namespace", "is_unused"), [("ml", False), ("", False), ("edl-system", True)]
)
def test_a_right_everywhere_is_not_for_edls_namespace(namespace: str, is_unused: bool) -> None:
    """There the same may be granted by a narrower one."""
    right = Right("edl-reconciler", "", "", "pods", "create")
    audited = rights.read(_event(replace(right, namespace=namespace)))

    assert (right in rights.unused([right], audited)) is is_unused


def test_a_refusal_is_found_and_uses_nothing() -> None:
    """Requests without a resource and half a line are left out."""
    log = _event(GET, 403) + _event(GET, objectRef=None) + '{"verb": "ge'
    audited = rights.read(log)

    assert rights.refused(audited) == {GET}
    assert rights.unused([GET], audited) == {GET}
    assert str(GET) == "edl-webhook: get secrets edl-webhook-tls in edl-system"
