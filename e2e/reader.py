"""Runs the shell commands of the documents as their reader would, on a cluster with EDL."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e import commands
from e2e.in_cluster import BareCluster

_ROOT = Path(__file__).parents[1]
_COMMAND_S = 180.0
_FAILED = "FAILED "
_NOT_FOUND = f"{_FAILED}1 grep "
"""How a `grep` ends that finds nothing, which is not a failure."""
_TRAP = f"trap 'echo \"{_FAILED}$? $BASH_COMMAND\" >&2' ERR\n"


def failed_commands(bare: BareCluster, script: str, files: Mapping[str, str]) -> list[str]:
    """Runs a block of commands in a folder that has what a clone has; those that failed.

    Args:
        bare: The cluster.
        script: Shell commands.
        files: Name -> content of what the reader has made.
    """
    folder = bare.directory / "reader"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("deploy", "examples", ".venv"):
        target = Path(sys.prefix) if name == ".venv" else _ROOT / name
        (folder / name).symlink_to(target)
    for name, content in files.items():
        (folder / name).write_text(content)
    words = ["bash", "-c", f"cd {shlex.quote(str(folder))}\n{_TRAP}{script}"]
    path = f"{bare.cluster.kubectl.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "PYTHONPATH": str(_ROOT)}
    done = commands.run(bare.cluster, words, environ=environ, timeout_s=_COMMAND_S)
    lines = [line for line in done.stderr.splitlines() if line.startswith(_FAILED)]
    return [
        f"{line}: {done.stdout}{done.stderr}" for line in lines if not line.startswith(_NOT_FOUND)
    ]
