"""Environment variables by which programs that use other frameworks find their peers. Pure.

`paddle` stands for the variables of PaddlePaddle's jobs on Kubernetes (PaddlePaddle/edl `pkg/jobparser.go`,
and the role makers in `python/paddle/distributed`). `torch` stands for torchrun's arguments as PET_...
variables (torch `distributed/argparse_util.py`, `elastic/rendezvous/c10d_rendezvous_backend.py`). The
framework itself sets variables that depend on the current trainers (RANK, WORLD_SIZE, lists of trainers).
Called by `reconciler.manifests`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from policy.cluster.snapshot import Job
from policy.names import Role

PADDLE, TORCH = "paddle", "torch"
NAMES = (PADDLE, TORCH)
STORE_PORT = 29_400
"""Port of torch's store on the trainer that hosts EDL's master; torchrun's default."""
PADDLE_PORT = 7164
"""Port of a trainer or server whose template names no port; Paddle's default."""
_RESTARTS = 1_000_000
"""Process failures after which torchrun gives up; in practice `backoffLimit` limits trainers' failures."""
Variable = dict[str, object]
"""core/v1 EnvVar."""


@dataclass(frozen=True, slots=True)
class RolePod:
    """A pod of a job, or the container of the job's master, with the addresses of its peers."""

    role: Role
    number: int = 0
    """The trainer's id, or the server's index."""
    master: str = ""
    """host:port of the master; "" for a job without one."""
    servers: tuple[str, ...] = ()
    """host:port of each parameter server, in the order of their indices."""
    hosts_master: bool = False


def has_variables(job: Job) -> bool:
    """Returns whether a job's pods get variables: it names a framework, or runs a user's master or servers."""
    own_servers = job.servers is not None and bool(job.servers.ports)
    return bool(job.environment or job.master_template_json) or own_servers


def variables(job: Job, role_pod: RolePod) -> list[Variable]:
    """Returns the variables of a pod: EDL's own, and those of the frameworks that its job names.

    The pod's address comes first, because later variables refer to it.
    """
    if not has_variables(job):
        return []
    own = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    namespace = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    texts = _edl(job, role_pod)
    for name in job.environment:
        texts |= _OF_FRAMEWORK[name](job, role_pod)
    constants: list[Variable] = [{"name": name, "value": value} for name, value in texts.items()]
    return [
        {"name": "POD_IP", "valueFrom": own},
        {"name": "NAMESPACE", "valueFrom": namespace},
        *constants,
    ]


def _edl(job: Job, role_pod: RolePod) -> dict[str, str]:
    texts = {
        "EDL_JOB": job.name,
        "EDL_ROLE": role_pod.role.value,
        "EDL_INDEX": str(role_pod.number),
        "EDL_PROCESSES": str(job.processes),
        "EDL_MASTER_HOST": role_pod.master,
        "EDL_SERVER_HOSTS": ",".join(role_pod.servers),
    }
    return {name: text for name, text in texts.items() if text}


def _paddle(job: Job, role_pod: RolePod) -> dict[str, str]:
    hosts = ",".join(address.rpartition(":")[0] for address in role_pod.servers)
    ports = job.servers.ports if job.servers is not None else ()
    port = str(ports[0] if ports else PADDLE_PORT)
    texts = {
        "PADDLE_JOB_NAME": job.name,
        "PADDLE_JOB_ID": job.uid,
        "TRAINERS": str(job.min_trainers),
        "PSERVERS": str(len(role_pod.servers)),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(job.min_trainers),
        "PADDLE_INIT_PORT": port,
        "PADDLE_PORT": port,
        "PADDLE_TRAINERS_NUM": str(job.min_trainers),
        "PADDLE_NNODES": f"{job.min_trainers}:{job.max_trainers}",
        "PADDLE_NPROC_PER_NODE": str(job.processes),
        "TRAINING_ROLE": _PADDLE_ROLES[role_pod.role],
        "PADDLE_CURRENT_ENDPOINT": f"$(POD_IP):{port}",
    }
    if role_pod.role is Role.TRAINER:
        texts |= {
            "PADDLE_TRAINER_ID": str(role_pod.number),
            "PADDLE_INIT_TRAINER_ID": str(role_pod.number),
        }
    if role_pod.role is Role.PSERVER:
        texts["PADDLE_PSERVER_ID"] = str(role_pod.number)
    if role_pod.servers:
        texts |= {
            "PADDLE_INIT_PSERVERS": hosts,
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(role_pod.servers),
        }
    if role_pod.master:
        texts |= {"PADDLE_MASTER": role_pod.master, "MASTER_IP": role_pod.master.rpartition(":")[0]}
    return texts


def _torch(job: Job, role_pod: RolePod) -> dict[str, str]:
    """Returns the variables for `torch`; only trainers have some, because torchrun starts there."""
    if role_pod.role is not Role.TRAINER or not role_pod.master:
        return {}
    host, _, port = role_pod.master.rpartition(":")
    if job.edl_master:
        port = str(STORE_PORT)
    is_host = job.edl_master and role_pod.hosts_master
    return {
        "PET_NNODES": f"{job.min_trainers}:{job.max_trainers}",
        "PET_NPROC_PER_NODE": str(job.processes),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_ID": job.uid,
        "PET_RDZV_CONF": f"is_host={int(is_host)}",
        "PET_MAX_RESTARTS": str(_RESTARTS),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
    }


_OF_FRAMEWORK: dict[str, Callable[[Job, RolePod], dict[str, str]]] = {
    PADDLE: _paddle,
    TORCH: _torch,
}
_PADDLE_ROLES = {Role.TRAINER: "TRAINER", Role.PSERVER: "PSERVER", Role.MASTER: "MASTER"}
