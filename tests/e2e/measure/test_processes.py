"""What processes cost, and where a figure was measured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.measure.processes import busy_seconds, commit, cpu_seconds, machine, others_percent


def test_cpu_time_is_read_and_grows() -> None:
    """Work of this process and of its ended children shows."""
    before = cpu_seconds(os.getpid())
    burn = "sum(i * i for i in range(2_000_000))"
    subprocess.run([sys.executable, "-c", burn], check=True, timeout=60)  # noqa: S603 - ours
    assert cpu_seconds(os.getpid()) > before


def test_a_process_that_is_gone_used_nothing() -> None:
    """The report does not break over a process that died."""
    assert cpu_seconds(2**22 + 1) == 0


def test_others_use_what_is_busy_and_not_ours() -> None:
    """Never below nothing, and nothing where no time passes."""
    cores = os.cpu_count() or 1
    assert others_percent(cores * 6.0, cores * 4.0, 10.0) == pytest.approx(20)
    assert others_percent(1.0, 2.0, 10.0) == 0
    assert others_percent(1.0, 0.0, 0.0) == 0
    assert busy_seconds() > 0


def test_the_machine_is_described() -> None:
    """Cores, memory and versions: what a figure depends on."""
    description = machine()
    assert description["cpus"] == os.cpu_count()
    assert description["memory_gib"] > 0
    assert all(description.values())


def test_commit_outside_of_git_is_unknown(tmp_path: Path) -> None:
    """A copy without history can be measured, too."""
    assert commit(tmp_path) == "unknown"


def test_commit_tells_changed_files(tmp_path: Path) -> None:
    """A plus says that the tree is not that commit exactly."""
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, timeout=60)  # noqa: S603, S607 - git of the machine
    clean = commit(tmp_path)
    (tmp_path / "new").touch()
    assert len(clean) == 12
    assert commit(tmp_path) == clean + "+"
