"""What kwok is told: its options and the lives of nodes and pods (`stages.yaml`)."""

import copy
from pathlib import Path
from typing import Any

import yaml

STOP_TIME_MS = 1000
"""How long a pod takes to end after SIGTERM unless its annotation says otherwise."""

LEASE_S = 400
"""A node's lease; kwok renews each at a quarter of it: 1000 nodes cost 10 requests a second."""

_SOURCE = Path(__file__).with_name("stages.yaml")
_STOP_STAGE = "pod-stop"


def stages(stop_time_ms: int = STOP_TIME_MS) -> list[dict[str, Any]]:
    """The stages as kwok's own objects, with this default for the time pods take to stop."""
    specs: list[dict[str, Any]] = copy.deepcopy(yaml.safe_load(_SOURCE.read_text()))
    found = []
    for spec in specs:
        name = spec.pop("name")
        if name == _STOP_STAGE:
            spec["delay"]["durationMilliseconds"] = stop_time_ms
        found.append(
            {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": "Stage",
                "metadata": {"name": name},
                "spec": spec,
            }
        )
    return found


def options() -> dict[str, Any]:
    """Kwok's own settings: enough workers for bursts, few heartbeats."""
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "cidr": "10.244.0.0/16",
            "manageNodesWithLabelSelector": "type=kwok",
            "nodeLeaseDurationSeconds": LEASE_S,
            "nodeLeaseParallelism": 8,
            "nodePlayStageParallelism": 8,
            "podPlayStageParallelism": 16,  # some hundred pods a second; 4 play about half of it
        },
    }


def document(stop_time_ms: int = STOP_TIME_MS) -> str:
    """Everything as one YAML stream, for `kwok --config`."""
    return yaml.safe_dump_all([options(), *stages(stop_time_ms)], sort_keys=False)
