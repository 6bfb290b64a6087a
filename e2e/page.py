"""The page as a process beside a local cluster, and its callers with tokens of the API server."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import yaml

from e2e.control_plane import RESOURCES
from e2e.environment import Environment
from e2e.waiting import until
from kube import request
from kube.request import ROLEBINDINGS, Request
from policy.names import SYSTEM_NAMESPACE

ROOT = Path(__file__).parents[1]
COMPONENT = ROOT / "deploy" / "components" / "page"
_ACCOUNT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-page"
_LIMIT_S = 60.0
_OK = 200


def install(environment: Environment) -> None:
    """Creates the account of the page, with the rights of its component."""
    for path in sorted(COMPONENT.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            resource = RESOURCES.get(document["kind"])
            if resource is not None and document["kind"] != "Deployment":
                namespace = document["metadata"].get("namespace")
                environment.send(request.create(resource, namespace, document))


def token(environment: Environment, namespace: str, name: str, role: str, everywhere: bool) -> str:
    """Returns a token of a new service account with a cluster role, in its namespace or everywhere."""
    account = {"metadata": {"name": name}}
    environment.send(request.create(RESOURCES["ServiceAccount"], namespace, account))
    binding = {
        "metadata": {"name": f"{namespace}-{name}" if everywhere else name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    if everywhere:
        kind = RESOURCES["ClusterRoleBinding"]
        environment.send(request.create(kind, None, binding))
    else:
        environment.send(request.create(ROLEBINDINGS, namespace, binding))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    review = environment.send(Request("POST", path, body=orjson.dumps(body)))
    return str(review["status"]["token"])


class PageClient:
    """The page's port."""

    def __init__(self, address: str) -> None:
        """Calls nothing yet."""
        self._address = address

    def get(self, path: str, caller: str = "") -> tuple[int, str]:
        """Status and body of an answer."""
        connection, response = self._open(path, caller)
        try:
            return response.status, response.read().decode()
        finally:
            connection.close()

    def json(self, path: str, caller: str) -> Any:
        """Returns the JSON of an answer."""
        status, text = self.get(path, caller)
        assert status == 200, text
        return orjson.loads(text)

    @contextmanager
    def stream(self, caller: str, **query: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """(event, data) of a stream, as they come."""
        words = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        connection, response = self._open(f"/api/v1/stream?{words}", caller)
        assert response.status == 200, response.read()

        def events() -> Iterator[tuple[str, Any]]:
            name = ""
            for line in response:
                field, _, value = line.rstrip(b"\n").partition(b": ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    yield name, orjson.loads(value)

        try:
            yield events()
        finally:
            connection.close()

    def _open(self, path: str, caller: str) -> tuple[HTTPConnection, Any]:
        connection = HTTPConnection(self._address, timeout=_LIMIT_S)
        headers = {"Authorization": f"Bearer {caller}"} if caller else {}
        connection.request("GET", path, headers=headers)
        return connection, connection.getresponse()


@contextmanager
def running(environment: Environment, directory: Path, *flags: str) -> Iterator[PageClient]:
    """The page with the rights of its account, once it has read the cluster; it is gone afterwards."""
    announce, log = directory / "address", directory / "page.log"
    command = [
        *(sys.executable, "-m", "page", "--log-format", "json", "--drain-seconds", "0"),
        *("--kubeconfig", str(environment.cluster.kubeconfig(_ACCOUNT))),
        *("--listen", "127.0.0.1:0", "--probe-listen", "127.0.0.1:0"),
        *("--announce-file", str(announce), *flags),
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file)
    try:
        until("the page listens", announce.exists, bool, _LIMIT_S)
        address, probes = announce.read_text().split()
        ready = PageClient(probes)
        until(
            "the page is ready", lambda: ready.get("/readyz")[0], lambda code: code == _OK, _LIMIT_S
        )
        yield PageClient(address)
    finally:
        process.terminate()
        process.wait(_LIMIT_S)


def measured(begun_s: float) -> str:
    """Returns the time since then, for a report."""
    return f"{time.monotonic() - begun_s:.2f} s"
