"""A cluster in memory for the admin's commands: with a version, access reviews and admission."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import yaml

from admin.reader import ENDPOINTSLICES, KINDS
from kube import request
from kube.errors import Forbidden, Invalid
from kube.request import RESOURCES, Request
from lab.fake_api import FakeApi
from policy.names import MANAGER, SYSTEM_NAMESPACE

BASE = Path(__file__).parents[2] / "deploy" / "base"
NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


class AdminCluster(FakeApi):
    """An API server; its flags say what is wrong with it."""

    def __init__(self) -> None:
        """A healthy cluster without EDL."""
        kinds = dict.fromkeys((*RESOURCES, *KINDS, ENDPOINTSLICES))
        super().__init__(resources=tuple(kinds), wall=lambda: NOW)
        self.minor = "36"
        self.forbidden: set[str] = set()
        """Plurals that the caller may not create or read."""
        self.refusals: dict[str, str] = {}
        """Path of a collection -> why objects are refused there."""
        self.webhook = True
        """Whether EDL's webhook is called."""
        self.drops_managed_by = False

    def send(self, request: Request) -> bytes:
        """As the API server, with what the one in memory lacks."""
        if request.path == "/version" and "version" not in self.forbidden:
            answer = {"gitVersion": f"v1.{self.minor}.3", "major": "1", "minor": self.minor}
            return orjson.dumps(answer)
        if request.path.endswith("selfsubjectaccessreviews"):
            asked = orjson.loads(request.body)["spec"]["resourceAttributes"]
            allowed = asked["resource"] not in self.forbidden
            return orjson.dumps({"status": {"allowed": allowed}})
        if request.path.rpartition("/")[2] in self.forbidden:
            raise Forbidden("you may not", status=403, request=request.line)
        if ("dryRun", "All") in request.query:
            return self._admitted(request)
        return super().send(request)

    def _admitted(self, api_request: Request) -> bytes:
        words = self.refusals.get(api_request.path)
        if words is not None:
            raise Invalid(words, status=403, request=api_request.line)
        stored = orjson.loads(super().send(api_request))
        if stored["kind"] == "Job":
            if self.webhook and "edl.training/min-trainers" in stored["metadata"].get(
                "annotations", {}
            ):
                stored["spec"]["managedBy"] = MANAGER
            if self.drops_managed_by:
                stored["spec"].pop("managedBy", None)
        return orjson.dumps(stored)

    def put(self, kind: request.Resource, body: dict[str, Any], namespace: str = "") -> None:
        """Creates an object."""
        self.send(request.create(kind, namespace or None, body))

    def install(self) -> None:
        """Creates what `kubectl apply -k deploy/base` does, as far as commands look at it."""
        by_kind = {kind.kind: kind for kind in (*RESOURCES, *KINDS)}
        for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
            for body in yaml.safe_load_all((BASE / name).read_text()):
                kind = by_kind.get(body["kind"])
                if kind is not None:
                    namespace = body["metadata"].get("namespace") if kind.namespaced else None
                    self.send(request.create(kind, namespace, body))

    def uninstall(self) -> None:
        """Deletes that again, and what the namespace has with it."""
        for kind in KINDS:
            listing = self.send(
                request.list_page(kind, label_selector="app.kubernetes.io/part-of=edl")
            )
            for obj in orjson.loads(listing)["items"]:
                metadata = obj["metadata"]
                self.send(request.delete(kind, metadata.get("namespace"), metadata["name"]))

    def run_server(self, name: str, **status: Any) -> None:
        """A pod of a Deployment, and the Deployment's status."""
        labels = {"app.kubernetes.io/name": f"edl-{name}", "app.kubernetes.io/part-of": "edl"}
        pod = {
            "metadata": {"name": f"edl-{name}-1", "labels": labels},
            "spec": {"containers": [{"name": name}]},
        }
        self.put(request.PODS, pod, SYSTEM_NAMESPACE)
        running = {"status": {"phase": "Running", **status}}
        where = (request.PODS, SYSTEM_NAMESPACE, f"edl-{name}-1")
        self.send(request.merge_patch(*where, running, subresource="status"))
        ready = 0 if status else 1 if name == "extender" else 2
        body = {"status": {"readyReplicas": ready}}
        patch = request.merge_patch(
            request.DEPLOYMENTS, SYSTEM_NAMESPACE, f"edl-{name}", body, subresource="status"
        )
        self.send(patch)
