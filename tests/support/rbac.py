"""The API server's RBAC in memory: what the manifests in `deploy/` allow a service account.

Source: k8s.io/kubernetes `plugin/pkg/auth/authorizer/rbac`, and for grants and owner references
`pkg/registry/rbac/escalation_check.go` and `plugin/pkg/admission/gc`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

from kube import errors
from kube.api import Api, Stream
from kube.request import Request

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "base"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAME_SELECTOR = "metadata.name="
Permission = tuple[str, str, str, str]
"""Role, API group, resource (with its subresource) and verb."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the authorizer sees it; `name` is "" where it does not name one object."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule that a binding gives an account; `namespace` is "" for all of them."""

    role: str
    namespace: str
    rule: Mapping[str, Any]

    def permission(self, call: Call) -> Permission | None:
        """The permission that allows a call, if there is one."""
        names = self.rule.get("resourceNames") or ()
        allows = (
            (not self.namespace or self.namespace == call.namespace)
            and call.verb in self.rule["verbs"]
            and call.group in self.rule["apiGroups"]
            and call.resource in self.rule["resources"]
            and (not names or call.name in names)
        )
        return (self.role, call.group, call.resource, call.verb) if allows else None


@dataclass
class Account:
    """A service account with what bindings give it, and which permissions calls have used."""

    grants: Sequence[Grant]
    used: set[Permission] = field(default_factory=set)
    refused: list[Call] = field(default_factory=list)
    _allowing: dict[Call, frozenset[Permission]] = field(default_factory=dict, repr=False)
    """Permissions by the calls that they allow: a reconciler repeats its watches each second."""

    @property
    def permissions(self) -> set[Permission]:
        """Everything that it may do, anywhere."""
        return {
            (grant.role, group, resource, verb)
            for grant in self.grants
            for group in grant.rule["apiGroups"]
            for resource in grant.rule["resources"]
            for verb in grant.rule["verbs"]
        }

    def check(self, request: Request) -> None:
        """Records which permissions a request uses: those of one namespace, where they are enough.

        Raises:
            Forbidden: it has no permission for it.
        """
        for call in _calls(request):
            if call not in self._allowing:
                self._allowing[call] = self._permissions(call)
            if not self._allowing[call]:
                self.refused.append(call)
                raise errors.Forbidden(f"RBAC: {call}", status=403, reason="Forbidden")
            self.used |= self._allowing[call]

    def _permissions(self, call: Call) -> frozenset[Permission]:
        """Those that allow a call: of one namespace, where they are enough."""
        allowed = [(g, p) for g in self.grants if (p := g.permission(call))]
        narrow = frozenset(permission for grant, permission in allowed if grant.namespace)
        return narrow or frozenset(permission for _, permission in allowed)


class RestrictedApi:
    """An `Api` with the permissions of one account."""

    def __init__(self, api: Api, account: Account) -> None:
        """Starts nothing."""
        self._api, self._account = api, account

    def send(self, request: Request) -> bytes:
        """See `kube.api.Api`."""
        self._account.check(request)
        return self._api.send(request)

    def stream(self, request: Request) -> AbstractContextManager[Stream]:
        """See `kube.api.Api`."""
        self._account.check(request)
        return self._api.stream(request)


@cache
def documents(folder: Path = BASE) -> tuple[dict[str, Any], ...]:
    """All objects of a folder's manifests."""
    return tuple(
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if document
    )


def account(name: str, manifests: Sequence[Mapping[str, Any]] | None = None) -> Account:
    """The account edl-system/`name` with what manifests grant it; by default those of base."""
    manifests = documents() if manifests is None else manifests
    roles = {_key(d["kind"], d["metadata"]): d["rules"] for d in manifests if "rules" in d}
    grants = [
        Grant(binding["roleRef"]["name"], binding["metadata"].get("namespace", ""), rule)
        for binding in manifests
        if "roleRef" in binding and any(s["name"] == name for s in binding["subjects"])
        for rule in roles[_role_key(binding)]
    ]
    return Account(grants)


def _key(kind: str, metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    namespace = "" if kind == "ClusterRole" else metadata.get("namespace", "")
    return kind, namespace, metadata["name"]


def _role_key(binding: Mapping[str, Any]) -> tuple[str, str, str]:
    reference = binding["roleRef"]
    return _key(reference["kind"], {**binding["metadata"], "name": reference["name"]})


def _calls(request: Request) -> Iterator[Call]:
    """The permissions that a request needs: its own, and those of what it grants and owns."""
    call = _call(request)
    yield call
    if request.method != "POST" or "/" in call.resource:
        return
    body = orjson.loads(request.body)
    if call.resource == "roles":
        for rule in body["rules"]:
            for verb in rule["verbs"]:
                (group,), (resource,) = rule["apiGroups"], rule["resources"]
                for name in rule["resourceNames"]:
                    yield Call(verb, group, resource, call.namespace, name)
    for owner in body["metadata"].get("ownerReferences", ()):
        if owner.get("blockOwnerDeletion"):
            group = owner["apiVersion"].partition("/")[0]
            finalizers = f"{owner['kind'].lower()}s/finalizers"
            yield Call("update", group, finalizers, call.namespace, owner["name"])


def _call(request: Request) -> Call:
    parts = request.path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name = parts[0], parts[1] if len(parts) > 1 else ""
    if len(parts) > 2:
        resource = f"{resource}/{parts[2]}"
    query = dict(request.query)
    if request.method != "GET":
        return Call(_VERBS[request.method], group, resource, namespace, name)
    if name:
        return Call("get", group, resource, namespace, name)
    selector = query.get("fieldSelector", "")
    if selector.startswith(_NAME_SELECTOR):
        name = selector.removeprefix(_NAME_SELECTOR)
    verb = "watch" if "watch" in query else "list"
    return Call(verb, group, resource, namespace, name)
