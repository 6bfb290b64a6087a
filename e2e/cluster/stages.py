"""kwok's configuration: its options, and the stages of nodes and pods (`stages.yaml`)."""

import json
from pathlib import Path
from typing import Any

import yaml

STOP_TIME_MS = 1000
"""How long a pod takes to end after SIGTERM unless its annotation says otherwise."""

LEASE_S = 8_000
"""A node's lease. kwok renews each at a quarter of it, all in about one moment: no run is so long that it meets this."""

_SOURCE = Path(__file__).with_name("stages.yaml")
_DEFAULT_STOP_TIME = "DEFAULT_STOP_TIME"


def stages(stop_time_ms: int = STOP_TIME_MS) -> list[dict[str, Any]]:
    """Returns the stages as kwok's own objects, with this default for the time pods take to stop."""
    text = _SOURCE.read_text().replace(_DEFAULT_STOP_TIME, f"{stop_time_ms}ms")
    specs: list[dict[str, Any]] = yaml.safe_load(text)
    return [
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Stage",
            "metadata": {"name": spec["name"]},
            "spec": {field: value for field, value in spec.items() if field != "name"},
        }
        for spec in specs
    ]


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
            "podPlayStageParallelism": 16,  # the default of 4 holds bursts up
            "podsOnNodeSyncParallelism": 4,
            "nodeIP": "127.0.0.1",
        },
    }


def document(stop_time_ms: int = STOP_TIME_MS) -> str:
    """Everything as one YAML stream, for `kwok --config`."""
    # JSON keeps the shared templates apart; as YAML they would become aliases.
    documents = [options(), *stages(stop_time_ms)]
    return "\n---\n".join(json.dumps(manifest, indent=1) for manifest in documents) + "\n"
