"""What journeys on real nodes have in common: a machine that can, an image, and a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster, running
from e2e.cluster.machine import needs, python_image
from e2e.control_plane import EdlControlPlane
from e2e.environment import Environment, edl_environment

NODE_COUNT = 2


def skip_unless_able() -> None:
    """Skips the test where the machine cannot run containers."""
    try:
        needs.find()
    except ClusterError as error:
        pytest.skip(str(error))


@contextmanager
def real_cluster(place: Path, image_name: str) -> Iterator[Cluster]:
    """Two real nodes that have this project's image, without EDL.

    Args:
        place: A folder for the files of image and cluster.
        image_name: The image's name in pods.
    """
    with (
        _image(place, image_name) as image,
        running(place / "cluster", real_nodes=NODE_COUNT, images=[image]) as cluster,
    ):
        yield cluster


@contextmanager
def real_environment(
    place: Path, image_name: str, *, node_count: int = NODE_COUNT, **contents: Any
) -> Iterator[Environment]:
    """Real nodes with this project's image, with EDL beside them.

    Args:
        place: A folder for the files of image and cluster.
        image_name: The image's name in pods; the masters' image, too.
        node_count: The number of nodes.
        contents: More of the image, as for `python_image.build`.
    """
    with _image(place, image_name, **contents) as image:
        control_plane = EdlControlPlane(place, master_image=image_name)
        with edl_environment(
            place, control_plane, real_nodes=node_count, images=[image]
        ) as environment:
            yield environment


@contextmanager
def _image(place: Path, name: str, **contents: Any) -> Iterator[Path]:
    skip_unless_able()
    image = python_image.build(place / "image.tar", name, **contents)
    yield image
    image.unlink()  # pytest keeps the directories of the last runs
