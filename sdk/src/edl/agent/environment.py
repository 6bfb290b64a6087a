"""The environment that torchrun sets for a worker process (pure).

See https://docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edl.errors import RoundOver


@dataclass(frozen=True)
class Place:
    """An agent's place in a round."""

    rank: int
    """Rank of the agent (GROUP_RANK)."""
    sizes: tuple[int, ...]
    """Number of processes of each agent, in order of rank."""
    number: int
    """Number of the round."""

    @property
    def first_rank(self) -> int:
        """RANK of this agent's first process."""
        return sum(self.sizes[: self.rank])

    @property
    def world_size(self) -> int:
        """Number of processes of all agents."""
        return sum(self.sizes)


def sizes_of(extras: Sequence[str]) -> tuple[int, ...]:
    """Reads the number of processes that each agent announces in `extra`.

    Raises:
        RoundOver: A member is not an agent.
    """
    if not all(extra.isascii() and extra.isdecimal() and int(extra) > 0 for extra in extras):
        raise RoundOver(f"a member of this round is not an agent: members announce {extras!r:.200}")
    return tuple(map(int, extras))


def worker_environment(
    place: Place,
    local_rank: int,
    address: str,
    *,
    run_id: str,
    restarts: int,
    max_restarts: int,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Returns the complete environment of one process.

    Args:
        place: The agent's place in the round.
        local_rank: Number of the process in its agent.
        address: `host:port` for the process of rank 0.
        run_id: The job's name.
        restarts: How often this agent has restarted its processes after failures.
        max_restarts: How often it may restart them.
        environ: The agent's environment.
    """
    host, _, port = address.rpartition(":")
    size, rank = place.sizes[place.rank], place.first_rank + local_rank
    return {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",  # a collective that hangs ends its process
        **member_environment(local_rank, size, environ),
        "RANK": str(rank),
        "GROUP_RANK": str(place.rank),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": str(place.world_size),
        "GROUP_WORLD_SIZE": str(len(place.sizes)),
        "ROLE_WORLD_SIZE": str(place.world_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 itself listens at MASTER_PORT
        "TORCHELASTIC_ERROR_FILE": "",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    }


def member_environment(local_rank: int, size: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the complete environment of a process that is a separate trainer.

    Args:
        local_rank: Number of the process in its agent.
        size: Number of processes of the agent.
        environ: The agent's environment.
    """
    name = environ.get("EDL_TRAINER")
    return {
        **({} if size == 1 else {"OMP_NUM_THREADS": "1"}),
        **environ,
        **({"EDL_TRAINER": f"{name}:{local_rank}"} if name else {}),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(size),
    }
