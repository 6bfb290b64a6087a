"""Trees of earlier releases, from the history of this clone."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from e2e.control_plane import Release

LAST = "b2315ff"
"""The commit that counts as the last release."""
_ROOT = Path(__file__).parents[1]
_ROOMS = ("deploy", "extender", "kube", "master", "policy", "pserver", "reconciler", "runtime")
_REST = ("sdk", "webhook")


def checkout(directory: Path, commit: str = LAST) -> Release:
    """Returns the tree of a release, whose servers have their probes on the port of the API.

    Skips the journey in a clone without that history.
    """
    command = ["git", "-C", str(_ROOT), "archive", commit, *_ROOMS, *_REST]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this clone lacks {commit}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return Release(directory, has_probe_port=False)
