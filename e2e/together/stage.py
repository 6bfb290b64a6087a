"""One real node with EDL beside it: trains a job on it, and lets services take places for a while.

Containers have PaddlePaddle, from the environment that `make paddle` makes.
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
from e2e.edl import Edl
from e2e.journey import Journey, PodHistory, World
from kube import request
from kube.client import Client
from kube.config import load
from kube.request import DEPLOYMENTS, JOBS
from policy.names import ANNOTATION_MASTER, ANNOTATION_MAX, ANNOTATION_MIN

IMAGE = "edl.local/test-together:1"
SHARED = "/shared"
MODEL = "/app/models/slow.py"
TRAINER_CPU = "400m"
EXAMPLES = python_image.ROOT / "examples" / "models"
_MEMORY = "512Mi"
_WATCHED = "/app/watched.py"
_ENVIRONMENT = python_image.ROOT / "build" / "paddle"
_DISTRIBUTIONS = (python_image.PROJECT, "edl-sdk", "numpy", "paddlepaddle", "setuptools")
"""PaddlePaddle imports setuptools and does not say so."""
_PROGRAMS = ("sh", "cat", "grep")
"""PaddlePaddle asks with them what the processor can."""
_SERVICE = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"


@contextmanager
def stage(place: Path) -> Iterator[World]:
    """One real node of two cores, and EDL beside it; skips the test where that cannot be."""
    try:
        needs.find()
    except ClusterError as error:
        pytest.skip(str(error))
    found = [path.parent for path in _ENVIRONMENT.glob("lib/python3*/site-packages/paddle")]
    if not found:
        pytest.skip("PaddlePaddle is not installed: `make paddle` does that")
    files = {path: Path(__file__).with_name(Path(path).name) for path in (_WATCHED, MODEL)}
    files |= {f"/app/models/{path.name}": path for path in EXAMPLES.glob("*.py")}
    image = python_image.build(
        place / "image.tar",
        IMAGE,
        distributions=_DISTRIBUTIONS,
        files=files,
        others=found,
        programs=_PROGRAMS,
    )
    edl = Edl(place, master_image=IMAGE)
    scheduler = SchedulerOptions(edl.scheduler)
    with (
        running(place, scheduler=scheduler, real_nodes=1, images=[image]) as cluster,
        edl.beside(cluster),
        closing(Client(load(cluster.admin), user_agent="edl-journeys")) as api,
        PodHistory(api).following() as pods,
    ):
        yield World(cluster, edl, api, pods)
    image.unlink()  # pytest keeps the directories of the last runs


def data(kind: str, shared: Path) -> None:
    """Writes the data of an example where trainers find it in `SHARED`."""
    shared.mkdir(mode=0o777)
    runpy.run_path(str(EXAMPLES / "make_data.py"))[kind](shared)


def submit(
    here: Journey,
    name: str,
    words: Sequence[str],
    shared: Path,
    *,
    trainers: tuple[int, int],
    example: str,
    pause_s: float,
    more: Mapping[str, str] | None = None,
) -> None:
    """An elastic Job with a master, whose trainers do `edl train` and are watched.

    Args:
        here: Where.
        name: Of the Job.
        words: What follows `edl train MODEL`.
        shared: A folder of this machine, `SHARED` in the containers; notes are left there.
        trainers: Minimum and maximum.
        example: The model, one of examples/models.
        pause_s: How much longer each batch takes.
        more: Further annotations.
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
    metadata = {"name": name, "annotations": {**marks, **(more or {})}}
    body = {"metadata": metadata, "spec": {"template": {"spec": spec}}}
    here.world.send(request.create(JOBS, here.namespace, body))


@contextmanager
def services(here: Journey, count: int, cpu: str) -> Iterator[None]:
    """So many services want their places for as long as the block lasts."""
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
    here.world.send(request.create(DEPLOYMENTS, here.namespace, body))
    yield
    here.world.send(request.delete(DEPLOYMENTS, here.namespace, "web"))


def stay(seconds: float) -> None:
    """Lets it go on like that."""
    time.sleep(max(0.0, seconds))
