"""The NCCL cells without a card: their protocol over gloo, and the layout of NCCL's structures."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.gpu.nccl.library import UNDEFINED, Config, UniqueId, nonblocking_config
from e2e.gpu.nccl.options import Options
from e2e.gpu.nccl.processes import environment
from e2e.gpu.nccl.report import Report

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")
OFFSETS = {
    "size": 0,
    "magic": 8,
    "version": 12,
    "blocking": 16,
    "cgaClusterSize": 20,
    "minCTAs": 24,
    "maxCTAs": 28,
    "netName": 32,
    "splitShare": 40,
    "trafficClass": 44,
    "commName": 48,
    "collnetEnable": 56,
    "CTAPolicy": 60,
    "shrinkShare": 64,
    "nvlsCTAs": 68,
    "nChannelsPerNetPeer": 72,
    "nvlinkCentricSched": 76,
}
"""Of `ncclConfig_v22800` in nccl.h of 2.28.9, on a machine of 64 bits."""


@pytest.mark.timeout(400)  # a dozen processes import torch, on cores that others share
@pytest.mark.skipif(not (TORCH / "torch").exists(), reason="no torch here: `make torch`")
def test_protocol_over_gloo() -> None:
    """All of `nccl_facts.py`: losses, a new rank, overlapping groups, failures and their causes."""
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.e2e.gpu.nccl_facts"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TORCH}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )

    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_config_is_laid_out_as_in_the_header() -> None:
    """Every field is where NCCL 2.28.9 reads it."""
    offsets = {name: getattr(Config, name).offset for name, _ in Config._fields_}

    assert offsets == OFFSETS
    assert ctypes.sizeof(Config) == 80
    assert ctypes.sizeof(UniqueId) == 128


def test_config_leaves_all_but_blocking_to_nccl() -> None:
    """It equals NCCL_CONFIG_INITIALIZER but for `blocking`."""
    config = nonblocking_config()
    values = {name: getattr(config, name) for name in OFFSETS}
    identity = {name: values.pop(name) for name in ("size", "magic", "version", "blocking")}
    pointers = {values.pop(name) for name in ("netName", "commName")}

    assert identity == {"size": 80, "magic": 0xCAFEBEEF, "version": 22809, "blocking": 0}
    assert pointers == {None}
    assert set(values.values()) == {UNDEFINED} == {-(2**31)}


def test_every_rank_is_a_host_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL sees different hosts, and none of the variables that the caller has set."""
    monkeypatch.setenv("NCCL_TOPO_FILE", "/a/file")
    environments = [environment(_options(rank)) for rank in (0, 1)]

    assert len({each["NCCL_HOSTID"] for each in environments}) == 2
    assert all("NCCL_TOPO_FILE" not in each for each in environments)
    assert environments[0]["TMPDIR"] == "/a/folder"


def test_options_survive_the_command_line() -> None:
    """What the parent writes is what the rank reads."""
    assert Options.of_text(_options(1).text()) == _options(1)


def test_report_keeps_the_step_of_a_rank_that_hangs(tmp_path: Path) -> None:
    """Figures and the present step are written as they come."""
    path = tmp_path / "report.json"
    report = Report(path)
    with report.at("form_first"):
        pass
    with report.at("form_again"):
        read = Report.read(path)
    report.fail(ValueError("two\nlines"))

    assert (read.step, list(read.figures), read.done) == ("form_again", ["form_first_s"], False)
    assert Report.read(path).error == "ValueError: two lines"


def _options(rank: int) -> Options:
    return Options("change", "gloo", "part", rank, 2, "cpu", "/a/folder")
