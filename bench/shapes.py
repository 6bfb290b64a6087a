"""Shapes of the nodes and pods of a synthetic cluster."""

from dataclasses import dataclass, field

from policy.cluster.snapshot import (
    ANYWHERE,
    Constraints,
    Node,
    Requirement,
    Resources,
    Taint,
    Toleration,
)

GIB = 2**30
MIB = 2**20
GPU = "nvidia.com/gpu"
GPU_LABEL = "nvidia.com/gpu.product"
GPU_KINDS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S")
PLAIN_SIZES = ((17, 62), (18, 62), (18, 126), (32, 126), (32, 254), (64, 254))
"""CPU and GiB; less than round numbers, because the node reserves some."""

_ZONES = ("zone-a", "zone-b", "zone-c")
_DEDICATED_EVERY = 50
_CORDONED_EVERY = 97
_DEDICATED = Taint("dedicated", "databases", "NoSchedule")
_GPU_TAINT = Taint(GPU, "present", "NoSchedule")
_TOLERATES_GPUS = Toleration(GPU, "Exists", "", "NoSchedule")
_TOLERATES_ALL = Toleration("", "Exists", "", "")
_SERVICE_PRIORITY = 0
_SYSTEM_PRIORITY = 2_000_001_000


@dataclass(frozen=True, slots=True)
class PodShape:
    """A kind of pod: requests, constraints and frequency."""

    name: str
    requests: Resources = field(hash=False)
    share: int = 1
    """The relative frequency."""
    constraints: Constraints = ANYWHERE
    priority: int = _SERVICE_PRIORITY


def amounts(cpu: float, memory_mib: float, gpus: int = 0) -> dict[str, int]:
    """Returns the requests of one pod."""
    requests = {"cpu": round(cpu * 1000), "memory": round(memory_mib * MIB), "pods": 1}
    return requests | ({GPU: gpus} if gpus else {})


def _on_gpus(kind: int) -> Constraints:
    requirement = Requirement(GPU_LABEL, "In", (GPU_KINDS[kind],))
    return Constraints(((requirement,),), (_TOLERATES_GPUS,))


_EVERYWHERE = Constraints((), (_TOLERATES_ALL,))
SYSTEM = (
    PodShape("network", amounts(0.1, 50), constraints=_EVERYWHERE, priority=_SYSTEM_PRIORITY),
    PodShape("logs", amounts(0.15, 170.5), constraints=_EVERYWHERE, priority=_SYSTEM_PRIORITY),
)
"""System pods, one of each on every node."""

SERVICES = (
    PodShape("web", amounts(1, 1024), share=6),
    PodShape("api", amounts(2, 3072), share=5),
    PodShape("cache", amounts(1.5, 7321.7), share=2),
    PodShape("ranker", amounts(4, 8192), share=3),
    PodShape("queue", amounts(0.75, 1907.3), share=2),
    PodShape("search", amounts(3, 12_288.3), share=2),
    PodShape(
        "store",
        amounts(6, 24_576),
        constraints=Constraints((), (Toleration("dedicated", "Equal", "databases", ""),)),
    ),
)
SMALL_SERVICE = PodShape("sidekick", amounts(0.02, 31.4))

TRAINERS = (
    PodShape("five", amounts(5, 5 * 1024), share=6),
    PodShape("four", amounts(4, 8 * 1024), share=4),
    PodShape("eight", amounts(8, 16 * 1024), share=3),
    PodShape("large", amounts(12, 30 * 1024), share=2),
    PodShape("small", amounts(2, 2_500.5), share=1),
    PodShape("roomy", amounts(3, 20 * 1024), share=1),
    PodShape("one-gpu", amounts(7, 40 * 1024, 1), share=2, constraints=_on_gpus(1)),
    PodShape("four-gpus", amounts(28, 180 * 1024, 4), share=1, constraints=_on_gpus(0)),
)


def plain_node(number: int, size: tuple[int, int]) -> Node:
    """Returns a node without GPUs; a few are dedicated to databases or cordoned."""
    cpu, memory_gib = size
    return Node(
        name=f"node-{number:05}",
        allocatable=_allocatable(number, cpu, memory_gib),
        labels=_labels(number, f"c{cpu}m{memory_gib}"),
        taints=(_DEDICATED,) if number % _DEDICATED_EVERY == 1 else (),
        unschedulable=number % _CORDONED_EVERY == _CORDONED_EVERY - 1,
    )


def gpu_node(number: int, kind: int) -> Node:
    """Returns a node with 8 GPUs of one of two types, with a taint for GPU pods."""
    return Node(
        name=f"node-{number:05}",
        allocatable=_allocatable(number, 64, 510) | {GPU: 8},
        labels=_labels(number, "g64m510") | {GPU_LABEL: GPU_KINDS[kind]},
        taints=(_GPU_TAINT,),
    )


def _allocatable(number: int, cpu: int, memory_gib: int) -> dict[str, int]:
    odd = number * 7919 % 4096 * 4096
    return {"cpu": cpu * 1000, "memory": memory_gib * GIB - odd, "pods": 110}


def _labels(number: int, kind: str) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": f"node-{number:05}",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
    }
