"""A TrainingJob with user programs in all roles, in containers on a real node.

Its trainers reach parameter servers and master at the addresses that the variables name, and the job ends
as its trainers do.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import commands
from e2e.environment import Environment, isolated_namespace
from e2e.real_nodes import real_environment
from e2e.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

IMAGE = "edl.local/test-roles:1"
TRAINER = """
import os, sys, time, urllib.request

def reach(address):
    for _ in range(300):
        try:
            return urllib.request.urlopen(f"http://{address}/", timeout=2).status
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{address} is out of reach")

servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
assert len(servers) == int(os.environ["PSERVERS"]) == 2
for address in [*servers, os.environ["PADDLE_MASTER"], os.environ["PET_RDZV_ENDPOINT"]]:
    print("reached", address, reach(address), flush=True)
print("own address", os.environ["PADDLE_CURRENT_ENDPOINT"], os.environ["POD_IP"], flush=True)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node with this project's image, with EDL beside it."""
    place = tmp_path_factory.mktemp("roles")
    with real_environment(place, IMAGE, node_count=1) as prepared:
        yield prepared


def _container(*command: str, port: int = 0) -> dict[str, Any]:
    ports = {"ports": [{"containerPort": port}]} if port else {}
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    return {"name": "own", "image": IMAGE, "command": command, "resources": resources, **ports}


def _role(port: int) -> dict[str, Any]:
    container = _container("python", "-m", "http.server", str(port), port=port)
    return {"template": {"spec": {"containers": [container]}}}


def test_all_roles_find_each_other_on_a_real_node(environment: Environment) -> None:
    """By the variables alone; kubelets run the user's programs, and the trainers' end is the job's."""
    trainer = {"spec": {"containers": [_container("python", "-c", TRAINER)]}}
    body = {
        "apiVersion": "edl.training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "roles"},
        "spec": {
            "environment": ["paddle", "torch"],
            "trainer": {"min": 2, "max": 2, "template": trainer},
            "parameterServers": {"replicas": 2, **_role(7164)},
            "master": _role(8080),
            "backoffLimit": 0,
        },
    }
    with isolated_namespace(environment, "roles") as namespace:
        where = ("-n", namespace.name)
        cluster = environment.cluster
        done = commands.kubectl(cluster, *where, "apply", "-f", "-", text=json.dumps(body))
        assert done.returncode == 0, done.stderr
        words = ("get", "tj/roles", "-o", "jsonpath={.status.phase} {.status.reason}")
        text = until(
            "it has ended",
            lambda: commands.kubectl(cluster, *where, *words).stdout,
            lambda text: text.startswith(("Succeeded", "Failed")),
            180,
        )
        assert text.startswith("Succeeded"), text
        of_trainers = ("logs", "-l", "edl.training/role=trainer", "-c", "own", "--tail=-1")
        log = commands.kubectl(cluster, *where, *of_trainers)
        assert log.stdout.count("reached") == 8, log.stderr  # four addresses for each trainer
        assert "own address $(POD_IP)" not in log.stdout
