"""Fixtures of real training: a node with EDL, a training job, and services that preempt trainers.

Containers have PaddlePaddle, from the environment that `make paddle` creates.
"""

import runpy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.components import SchedulerOptions
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import running
from e2e.cluster.machine import needs, python_image
from e2e.control_plane import EdlControlPlane
from e2e.environment import Environment, IsolatedNamespace, PodHistory
from kube import request
from kube.client import Client
from kube.config import load
from kube.request import DEPLOYMENTS, JOBS
from policy.names import ANNOTATION_MASTER, ANNOTATION_MAX, ANNOTATION_MIN

IMAGE = "edl.local/test-real-training:1"
SHARED = "/shared"
MODEL = "/app/models/slow.py"
TRAINER_CPU = "400m"
EXAMPLES = python_image.ROOT / "examples" / "models"
_MEMORY = "512Mi"
_WATCHED = "/app/watched.py"
_ENVIRONMENT = python_image.ROOT / "build" / "paddle"
_DISTRIBUTIONS = (python_image.PROJECT, "edl-sdk", "numpy", "paddlepaddle", "setuptools")
"""PaddlePaddle imports setuptools without declaring it."""
_PROGRAMS = ("sh", "cat", "grep")
"""PaddlePaddle runs them to detect processor features."""
_SERVICE = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"


@contextmanager
def training_environment(place: Path) -> Iterator[Environment]:
    """One real node of two cores, with EDL; skips the test where the machine lacks requirements."""
    try:
        needs.find()
    except ClusterError as error:
        pytest.skip(str(error))
    site_packages = [path.parent for path in _ENVIRONMENT.glob("lib/python3*/site-packages/paddle")]
    if not site_packages:
        pytest.skip("PaddlePaddle is not installed: `make paddle` does that")
    files = {path: Path(__file__).with_name(Path(path).name) for path in (_WATCHED, MODEL)}
    files |= {f"/app/models/{path.name}": path for path in EXAMPLES.glob("*.py")}
    image = python_image.build(
        place / "image.tar",
        IMAGE,
        distributions=_DISTRIBUTIONS,
        files=files,
        others=site_packages,
        programs=_PROGRAMS,
    )
    control_plane = EdlControlPlane(place, master_image=IMAGE)
    scheduler = SchedulerOptions(control_plane.scheduler)
    with (
        running(place, scheduler=scheduler, real_nodes=1, images=[image]) as cluster,
        control_plane.installed_in(cluster),
        closing(Client(load(cluster.admin), user_agent="edl-e2e")) as api,
        PodHistory(api).following() as pods,
    ):
        yield Environment(cluster, control_plane, api, pods)
    image.unlink()  # pytest keeps the directories of the last runs


def write_data(kind: str, shared: Path) -> None:
    """Writes the data of an example to the folder that trainers mount as `SHARED`."""
    shared.mkdir(mode=0o777)
    runpy.run_path(str(EXAMPLES / "make_data.py"))[kind](shared)


def submit(
    namespace: IsolatedNamespace,
    name: str,
    words: Sequence[str],
    shared: Path,
    *,
    trainers: tuple[int, int],
    example: str,
    pause_s: float,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Creates an elastic Job with a master, whose trainers run `edl train` under `watched.py`.

    Args:
        namespace: The namespace to create it in.
        name: The Job's name.
        words: Arguments after `edl train MODEL`.
        shared: A folder of this machine, `SHARED` in the containers; traces are written there.
        trainers: Minimum and maximum.
        example: The model, one of examples/models.
        pause_s: Added duration of each batch.
        annotations: Further annotations.
    """
    low, high = map(str, trainers)
    marks = {ANNOTATION_MIN: low, ANNOTATION_MAX: high, ANNOTATION_MASTER: "true"}
    env = {"EXAMPLE": example, "PAUSE_S": str(pause_s), "OMP_NUM_THREADS": "1"}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python", _WATCHED, SHARED, "-m", "edl", "train", MODEL, *words],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"requests": {"cpu": TRAINER_CPU, "memory": _MEMORY}},
        "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shared", "hostPath": {"path": str(shared)}}],
    }
    metadata = {"name": name, "annotations": {**marks, **(annotations or {})}}
    body = {"metadata": metadata, "spec": {"template": {"spec": spec}}}
    namespace.environment.send(request.create(JOBS, namespace.name, body))


@contextmanager
def services(namespace: IsolatedNamespace, count: int, cpu: str) -> Iterator[None]:
    """Runs a Deployment of `count` services for the duration of the block."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python", "-c", _SERVICE],
        "resources": {"requests": {"cpu": cpu}},
    }
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    body: dict[str, Any] = {"metadata": {"name": "web"}, "spec": spec}
    namespace.environment.send(request.create(DEPLOYMENTS, namespace.name, body))
    yield
    namespace.environment.send(request.delete(DEPLOYMENTS, namespace.name, "web"))


def sleep_s(seconds: float) -> None:
    """Sleeps; not at all for a negative time."""
    time.sleep(max(0.0, seconds))
