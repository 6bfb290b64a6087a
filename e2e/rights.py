"""Compares the rights of EDL's accounts with their requests in the API server's audit log. Pure.

with running(directory, apiserver_args=audit_flags(directory)) as cluster: ...
requests = read(audit_log(directory).read_text())
assert not refused(requests) and not unused(granted(scheduling.documents(...)), requests)
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policy.names import SYSTEM_NAMESPACE

ACCOUNTS = ("edl-webhook", "edl-extender", "edl-reconciler", "edl-page")
_PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [_PREFIX + account for account in ACCOUNTS]},
        {"level": "None"},
    ],
}
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, of one account.

    Attributes:
        account: Without its namespace.
        namespace: Where; "" for everywhere.
        group: API group; "" for core/v1.
        resource: Plural, with "/subresource" where there is one.
        verb: Of the API.
        name: The only object; "" for all.
    """

    account: str
    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        """One line for an admin."""
        name, where = (f" {self.name}" if self.name else ""), self.namespace or "any namespace"
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.account}: {self.verb} {kind}{name} in {where}"


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """A request of EDL as the API server has noted it.

    Attributes:
        asked: What was asked for; for a collection `name` is that of its field selector.
        is_refused: Whether the answer was 403.
    """

    asked: Right
    is_refused: bool


def audit_log(directory: Path) -> Path:
    """Where the log of `audit_flags` goes."""
    return directory / "audit.log"


def audit_flags(directory: Path) -> tuple[str, ...]:
    """Flags of kube-apiserver with which it notes all requests of EDL; writes their policy's file."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY))  # JSON is YAML
    return (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log(directory)}")


def read(log: str) -> list[AuditedRequest]:
    """Returns the requests of an audit log for resources; a last line that is not complete is left out."""
    whole, _, _ = log.rpartition("\n")
    events = [json.loads(line) for line in whole.splitlines() if line]
    return [_request(event) for event in events if event.get("objectRef")]


def _request(event: Mapping[str, Any]) -> AuditedRequest:
    of = event["objectRef"]
    parts = [of["resource"], of.get("subresource", "")]
    asked = Right(
        account=event["user"]["username"].removeprefix(_PREFIX),
        namespace=of.get("namespace", ""),
        group=of.get("apiGroup", ""),
        resource="/".join(filter(None, parts)),
        verb=event["verb"],
        name=of.get("name", ""),
    )
    return AuditedRequest(asked, event.get("responseStatus", {}).get("code") == _FORBIDDEN)


def granted(documents: Iterable[Mapping[str, Any]]) -> set[Right]:
    """All rights that manifests grant to EDL's accounts."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    roles = {
        (role["kind"], role["metadata"]["name"]): role["rules"]
        for kind in ("ClusterRole", "Role")
        for role in by_kind.get(kind, ())
    }
    return {
        Right(subject["name"], binding["metadata"].get("namespace", ""), *of)
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for binding in by_kind.get(kind, ())
        for subject in binding["subjects"]
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for of in _of(rule)
    }


def _of(rule: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(group, resource, verb, name) of a rule."""
    return [
        (group, resource, verb, name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    ]


def refused(audited: Iterable[AuditedRequest]) -> set[Right]:
    """What EDL asked for and did not get."""
    return {request.asked for request in audited if request.is_refused}


def unused(rights: Iterable[Right], audited: Iterable[AuditedRequest]) -> set[Right]:
    """Rights without which every request would have been granted, too.

    A right to everything counts for what is outside of EDL's namespace, where it has others.
    """
    asked = {request.asked for request in audited if not request.is_refused}
    return {right for right in rights if not any(_covers(right, one) for one in asked)}


def _covers(right: Right, asked: Right) -> bool:
    is_there = (
        asked.namespace == right.namespace
        if right.namespace
        else asked.namespace != SYSTEM_NAMESPACE
    )
    same = (right.account, right.group, right.resource, right.verb)
    is_kind = same == (asked.account, asked.group, asked.resource, asked.verb)
    return is_there and is_kind and (not right.name or right.name == asked.name)
