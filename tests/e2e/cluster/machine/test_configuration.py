import json
import tomllib
from pathlib import Path

from e2e.cluster.machine import configuration
from e2e.cluster.machine.configuration import NodeLayout
from e2e.cluster.machine.network import link

LAYOUT = NodeLayout(Path("/d/real-1"))
ENDS = link(0, 1)


def test_containerd_is_told_where_runc_and_plugins_are() -> None:
    """No systemd, our own pause image, and settings that a virtual machine allows."""
    config = tomllib.loads(configuration.containerd(LAYOUT, Path("/x/runc"), Path("/x/cni")))
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    options = runtime["containerd"]["runtimes"]["runc"]["options"]

    assert options == {"BinaryName": "/x/runc", "SystemdCgroup": False}
    assert runtime["cni"] == {"bin_dirs": ["/x/cni"], "conf_dir": "/d/real-1/config/cni"}
    assert runtime["restrict_oom_score_adj"]
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == configuration.PAUSE_IMAGE


def test_the_kubelet_evicts_nothing_and_lets_nobody_in() -> None:
    """The machine's disk is not its own; who asks it must have a certificate and the right."""
    config = configuration.kubelet(LAYOUT, ENDS, "edl-e2e-0/real-1", "")

    assert set(config["evictionHard"].values()) == {"0%"}
    assert config["cgroupRoot"] == "/edl-e2e-0/real-1"
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["address"] == ENDS.address
    assert "clusterDNS" not in config


def test_pods_ask_the_clusters_dns_where_it_has_one() -> None:
    """By the domain under which Services have names."""
    config = configuration.kubelet(LAYOUT, ENDS, "edl-e2e-0/real-1", "10.128.254.10")

    assert (config["clusterDNS"], config["clusterDomain"]) == (["10.128.254.10"], "cluster.local")


def test_pods_and_proxy_know_the_same_range() -> None:
    """What kube-proxy takes for pods is what the bridge gives them."""
    plugin = configuration.cni(ENDS.pods)["plugins"][0]
    proxy = configuration.kube_proxy(LAYOUT, "real-1", ENDS.pods)

    assert plugin["ipam"]["ranges"] == [[{"subnet": proxy["clusterCIDR"]}]]
    assert proxy["hostnameOverride"] == "real-1"
    assert {proxy["conntrack"][key] for key in ("maxPerCore", "min")} == {0}


def test_the_plan_loads_every_image_before_the_kubelet_starts() -> None:
    """It is plain JSON; images come in their order, and the kubelet is known by the node's name."""
    images = (Path("/i/pause.tar"), Path("/i/app.tar"))
    plan = configuration.plan(LAYOUT, "real-1", ENDS, Path("/b"), images)

    assert json.loads(json.dumps(plan)) == plan
    assert [words[-1] for words in plan["imports"]] == ["/i/pause.tar", "/i/app.tar"]
    assert plan["imports"][0] == configuration.import_command(images[0])
    assert [words[0] for words in plan["services"]] == ["kubelet", "kube-proxy"]
    assert "--hostname-override=real-1" in plan["services"][0]


def test_the_api_server_is_open_to_nodes_and_may_ask_kubelets() -> None:
    """Its address for pods is the gateway; kubelets see a certificate that they trust."""
    files = (Path("/c.crt"), Path("/c.key"), Path("/ca.crt"))
    flags = configuration.apiserver(ENDS.gateway, ENDS.services, *files)

    assert f"--service-cluster-ip-range={ENDS.services}" in flags
    assert f"--advertise-address={ENDS.gateway}" in flags
    assert "--kubelet-client-certificate=/c.crt" in flags
    assert "--kubelet-certificate-authority=/ca.crt" in flags
