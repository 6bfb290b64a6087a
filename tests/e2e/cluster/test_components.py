from pathlib import Path

from e2e.cluster import components
from e2e.cluster.components import COMPONENTS, ClusterLayout, Ports, SchedulerOptions, merged

LAYOUT = ClusterLayout(Path("/c"))
PORTS = Ports(by_name={name: 7000 + i for i, name in enumerate(COMPONENTS)}, etcd_peer=7009)


def test_mappings_are_merged_and_all_else_replaced() -> None:
    """Neither input is changed."""
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": {"z": 1}}
    over = {"a": {"y": [3]}, "b": {"n": 1}, "c": 5, "d": 6}

    assert merged(base, over) == {"a": {"x": 1, "y": [3]}, "b": {"n": 1}, "c": 5, "d": 6}
    assert base["a"] == {"x": 1, "y": [1, 2]}


def test_scheduler_options_lie_over_the_defaults() -> None:
    """Extenders and settings arrive; the client keeps its kubeconfig and gets the new limits."""
    options = SchedulerOptions(
        {"extenders": [{"urlPrefix": "https://x"}], "clientConnection": {"qps": 5}}, ("--v=4",)
    )
    config = components.scheduler_config(LAYOUT, options)

    assert config["kind"] == "KubeSchedulerConfiguration"
    assert config["extenders"] == [{"urlPrefix": "https://x"}]
    assert config["clientConnection"]["qps"] == 5
    assert config["clientConnection"]["kubeconfig"] == "/c/kubeconfig/kube-scheduler"
    assert config["leaderElection"] == {"leaderElect": False}
    assert components.scheduler(LAYOUT, PORTS, options)[-1] == "--v=4"


def test_extra_flags_come_last() -> None:
    """The API server takes the last one where a flag is given twice."""
    flags = components.apiserver(LAYOUT, PORTS, ("--max-requests-inflight=5",))

    assert flags[-1] == "--max-requests-inflight=5"
    assert "--secure-port=7001" in flags
    assert "--authorization-mode=Node,RBAC" in flags


def test_every_component_listens_on_its_own_port() -> None:
    """All of them on the loopback address only."""
    commands = {
        "etcd": components.etcd(LAYOUT, PORTS),
        "kube-controller-manager": components.controllers(LAYOUT, PORTS),
        "kube-scheduler": components.scheduler(LAYOUT, PORTS, SchedulerOptions()),
        "kwok": components.kwok(LAYOUT, PORTS),
    }

    for name, flags in commands.items():
        assert any(str(PORTS.by_name[name]) in flag for flag in flags), name
        assert any("127.0.0.1" in flag for flag in flags), name
    assert "--use-service-account-credentials=true" in commands["kube-controller-manager"]


def test_users_become_file_names() -> None:
    """A service account's name holds colons."""
    path = LAYOUT.kubeconfig("system:serviceaccount:a:b")

    assert path == Path("/c/kubeconfig/system_serviceaccount_a_b")
