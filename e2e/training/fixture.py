"""Fixtures of training on a real node: the node with EDL, a job, and services that preempt trainers."""

import runpy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.machine import python_image
from e2e.environment import Environment, IsolatedNamespace
from e2e.real_nodes import real_environment
from kube import request
from kube.request import DEPLOYMENTS, JOBS
from policy.names import ANNOTATION_MASTER, ANNOTATION_MAX, ANNOTATION_MIN

SHARED = "/shared"
WATCHED = "/app/watched.py"
_REAL_IMAGE = "edl.local/test-real-training:1"
_REAL_MEMORY = "512Mi"
_MODEL = "/app/models/slow.py"
_TRAINER_CPU = "400m"
_EXAMPLES = python_image.ROOT / "examples" / "models"
_ENVIRONMENT = python_image.ROOT / "build" / "paddle"
_DISTRIBUTIONS = (python_image.PROJECT, "edl-sdk", "numpy", "paddlepaddle", "setuptools")
"""PaddlePaddle imports setuptools without declaring it."""
_PROGRAMS = ("sh", "cat", "grep")
"""PaddlePaddle runs them to detect processor features."""
_SERVICE = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a job's trainers."""

    image: str
    words: Sequence[str]
    """Arguments of `python` after `watched.py` and its folder."""
    memory: str
    env: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Of this machine, by where containers have them."""


def edl_train(words: Sequence[str], *, example: str, pause_s: float) -> Program:
    """`edl train` with a PaddlePaddle model, in the image of `paddle_environment`.

    Args:
        words: Arguments after `edl train MODEL`.
        example: The model, one of examples/models.
        pause_s: Added duration of each batch.
    """
    env = {"EXAMPLE": example, "PAUSE_S": str(pause_s)}
    return Program(_REAL_IMAGE, ("-m", "edl", "train", _MODEL, *words), _REAL_MEMORY, env)


def paddle_environment(place: Path) -> AbstractContextManager[Environment]:
    """One real node of two cores, with EDL; skips the test where the machine lacks requirements.

    Containers have PaddlePaddle, from the environment that `make paddle` creates.
    """
    site_packages = [path.parent for path in _ENVIRONMENT.glob("lib/python3*/site-packages/paddle")]
    if not site_packages:
        pytest.skip("PaddlePaddle is not installed: `make paddle` does that")
    files = {path: Path(__file__).with_name(Path(path).name) for path in (WATCHED, _MODEL)}
    files |= {f"/app/models/{path.name}": path for path in _EXAMPLES.glob("*.py")}
    return real_environment(
        place,
        _REAL_IMAGE,
        node_count=1,
        distributions=_DISTRIBUTIONS,
        files=files,
        others=site_packages,
        programs=_PROGRAMS,
    )


def write_data(kind: str, shared: Path) -> None:
    """Writes the data of an example to the folder that trainers mount as `SHARED`."""
    shared.mkdir(mode=0o777)
    runpy.run_path(str(_EXAMPLES / "make_data.py"))[kind](shared)


def submit(
    namespace: IsolatedNamespace,
    name: str,
    program: Program,
    shared: Path,
    *,
    trainers: tuple[int, int],
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Creates an elastic Job with a master, whose trainers run a program under `watched.py`.

    Args:
        namespace: The namespace to create it in.
        name: The Job's name.
        program: What the trainers run.
        shared: A folder of this machine, `SHARED` in the containers; traces are written there.
        trainers: Minimum and maximum.
        annotations: Further annotations.
    """
    low, high = map(str, trainers)
    marks = {ANNOTATION_MIN: low, ANNOTATION_MAX: high, ANNOTATION_MASTER: "true"}
    env = {**program.env, "OMP_NUM_THREADS": "1"}
    folders = {SHARED: shared, **program.folders}
    container = {
        "name": "main",
        "image": program.image,
        "command": ["python", WATCHED, SHARED, *program.words],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"requests": {"cpu": _TRAINER_CPU, "memory": program.memory}},
        "volumeMounts": [
            {"name": f"folder-{number}", "mountPath": place} for number, place in enumerate(folders)
        ],
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": f"folder-{number}", "hostPath": {"path": str(path)}}
            for number, path in enumerate(folders.values())
        ],
    }
    metadata = {"name": name, "annotations": {**marks, **(annotations or {})}}
    body = {"metadata": metadata, "spec": {"template": {"spec": spec}}}
    namespace.environment.send(request.create(JOBS, namespace.name, body))


@contextmanager
def services(
    namespace: IsolatedNamespace, count: int, cpu: str, image: str = _REAL_IMAGE
) -> Iterator[None]:
    """Runs a Deployment of `count` services for the duration of the block."""
    container = {
        "name": "main",
        "image": image,
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
