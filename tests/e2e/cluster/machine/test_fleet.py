import os
from pathlib import Path

import pytest

from e2e.cluster.build import Binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine.configuration import NodeLayout
from e2e.cluster.machine.fleet import Fleet, RealNode, is_ready
from e2e.cluster.machine.network import link


def test_a_node_that_does_not_run_says_so(tmp_path: Path) -> None:
    """Whatever is asked of it; to stop it is no error."""
    node = RealNode("real-1", "edl-test", link(0, 1), NodeLayout(tmp_path))
    node.stop()

    assert node.exit_code is None
    assert node.guard_pid == 0
    assert node.logs == tmp_path / "log"
    for ask in (node.kill, node.check, lambda: node.run(["true"]), lambda: node.pid):
        with pytest.raises(ClusterError, match=r"^real-1 does not run$"):
            ask()


def test_nothing_is_started_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thing a fleet does is to look at the machine."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(ClusterError, match="no real nodes here"):
        Fleet(tmp_path / "nodes", Binaries(tmp_path), 1, ())
    assert not (tmp_path / "nodes").exists()


def test_a_node_is_ready_when_pods_are_let_onto_it() -> None:
    """Its condition says so, and the taint it begins with is gone; others are the user's affair."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    late = {"conditions": [{"type": "Ready", "status": "False"}]}
    taint = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    own = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}

    assert is_ready({"spec": {}, "status": ready})
    assert is_ready({"spec": own, "status": ready})
    assert not is_ready({"spec": taint, "status": ready})
    assert not is_ready({"spec": {}, "status": late})
    assert not is_ready({})
