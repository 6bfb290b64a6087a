"""The environment of a worker process."""

from collections.abc import Mapping

import pytest
from edl.agent.environment import Place, member_environment, sizes_of, worker_environment
from edl.errors import RoundOver

PLACE = Place(1, (2, 4, 1), 7)


def environment(local_rank: int = 3, **environ: str) -> Mapping[str, str]:
    """That of a process of the second of three agents."""
    return worker_environment(
        PLACE,
        local_rank,
        "10.0.0.1:1234",
        run_id="job",
        restarts=2,
        max_restarts=3,
        environ=environ,
    )


def test_ranks_go_through_all_agents() -> None:
    """In order of the agents' ranks, whatever number of processes each has."""
    assert (PLACE.first_rank, PLACE.world_size) == (2, 7)
    variables = environment()
    expected = {
        "RANK": "5",
        "LOCAL_RANK": "3",
        "GROUP_RANK": "1",
        "WORLD_SIZE": "7",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_RANK": "5",
        "ROLE_WORLD_SIZE": "7",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1234",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    assert {name: variables[name] for name in expected} == expected


def test_the_agent_s_variables_stay() -> None:
    """But each process has a name of its own at the master."""
    variables = environment(PATH="/bin", EDL_TRAINER="trainer-4")
    assert (variables["PATH"], variables["EDL_TRAINER"]) == ("/bin", "trainer-4:3")


def test_torch_s_own_choice_stays() -> None:
    """Whether a collective that hangs ends its process is the user's choice."""
    chosen = environment(TORCH_NCCL_ASYNC_ERROR_HANDLING="3")
    assert chosen["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_processes_share_the_cores() -> None:
    """One thread each, as torchrun sets it, unless the user has."""
    assert environment()["OMP_NUM_THREADS"] == "1"
    assert environment(OMP_NUM_THREADS="6")["OMP_NUM_THREADS"] == "6"


def test_a_trainer_of_its_own_has_no_rank_of_a_round() -> None:
    """Ranks change while it runs; its place at the agent does not."""
    variables = member_environment(1, 2, {"EDL_TRAINER": "trainer-4", "PATH": "/bin"})
    assert variables == {
        "PATH": "/bin",
        "EDL_TRAINER": "trainer-4:1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    assert "OMP_NUM_THREADS" not in member_environment(0, 1, {})


def test_what_agents_announce_is_read() -> None:
    """A member that announces something else is none."""
    assert sizes_of(["2", "8"]) == (2, 8)
    for extra in ("", "0", "x", "-1"):
        with pytest.raises(RoundOver, match="not an agent"):
            sizes_of(["2", extra])
