"""Facts about models that the processes of a pod hold together (FSDP2); run by `test_torch.py`."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import edl
import pytest
import torch
import torch.distributed as dist
from edl.local.ports import free_ports
from edl.master.protocol import Lease, Round
from edl.sync.growth import Growth, GrowthReport
from edl.sync.plans import Assignment, Span
from edl.sync.step_flags import StepFlags
from edl.torch.pods.news import PodNews
from edl.torch.pods.shards import check_alone
from edl.torch.pods.step import process_share
from edl.torch.state.dcp_files import read_model
from edl.torch.training import Training
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.crew import LIMIT_S, RECORDS, Crew, network
from tests.sdk.torch.forked_pods import ForkedPod, load_lazy_parts
from tests.sdk.torch.torch_training import alone, is_near, job

OPTIONS: dict[str, Any] = {
    "records": RECORDS,
    "batch_size": 32,
    "micro_batches": 4,
    "epochs": 2,
    "shuffle_seed": 3,
    "checkpoint_steps": 5,
}
STEPS = 2 * RECORDS // 32


def has_members(crew: Crew, count: int) -> bool:
    """Waits until so many pods are members."""
    until = threading.Event()
    for _ in range(int(LIMIT_S / 0.02)):
        if len(crew.master.service.status()["rendezvous"]["members"]) == count:
            return True
        until.wait(0.02)
    return False


def is_model(ours: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two models are the same, but for rounding."""
    return ours.keys() == other.keys() and all(
        torch.allclose(torch.tensor(ours[name]), torch.tensor(other[name]), rtol=1e-4, atol=1e-5)
        for name in ours
    )


def pods_come_and_go() -> None:
    """One process of a pod is killed, and its pod is lost; another pod takes its place and gets every shard.

    The first newcomer gets the state while all wait, the second in parts while the others train.

    The curve is that of one trainer with the whole model, the books are exact, all processes have the same
    model, and the checkpoint has all of it: trainers of any number continue from it.
    """
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        saved = {**OPTIONS, "checkpoints": str(folder / "saved")}
        first = ForkedPod(folder, "pod-0", saved, gates=(4, 8, 12), in_parts=True)
        lost = ForkedPod(folder, "pod-1", saved)
        newcomer = ForkedPod(folder, "pod-2", saved, in_parts=True)
        later = ForkedPod(folder, "pod-3", {**saved, "epochs": 3})
        with job() as crew:
            port = crew.master.port
            first.let_in(port)
            first.gates.wait()
            lost.let_in(port)
            assert has_members(crew, 2)
            first.gates.open()
            first.gates.wait()
            lost.kill(1)
            first.gates.open()
            assert lost.ends() == [1, -9]  # its first process cannot go on
            first.gates.wait()
            newcomer.let_in(port)
            assert has_members(crew, 2)
            first.gates.open()
            assert (first.ends(), newcomer.ends()) == ([0, 0], [0, 0])
            assert crew.done() == 2 * RECORDS
        results = [*first.results(), *newcomer.results()]
        assert all(result["whole"] and result["steps"] == STEPS for result in results)
        curve = {int(step): loss for step, loss in results[0]["losses"].items()}
        assert is_near(curve, alone())
        joined = {int(step): loss for step, loss in results[2]["losses"].items()}
        assert joined
        assert all(curve[step] == loss for step, loss in joined.items())
        assert all(result["model"] == results[0]["model"] for result in results)
        assert [result["received"] > 1 for result in results] == [False, False, True, True]
        checkpoint = edl.latest_checkpoint(saved["checkpoints"])
        assert checkpoint is not None
        whole = {name: tensor.tolist() for name, tensor in read_model(checkpoint).items()}
        assert is_model(whole, results[0]["model"])
        _continues_in_a_pod(later, results[0]["model"], saved["checkpoints"])


def _continues_in_a_pod(later: ForkedPod, before: dict[str, Any], folder: str) -> None:
    """Each process of another pod reads its part; a trainer without shards reads all."""
    with job() as crew:
        later.let_in(crew.master.port)
        assert later.ends() == [0, 0]
        results = later.results()
    assert results[0]["steps"] == results[1]["steps"]
    assert min(map(int, results[0]["losses"])) == STEPS + 1, results[0]["losses"].keys()
    assert not is_model(results[0]["model"], before)
    with job(checkpoints=folder, epochs=4) as crew:
        plain = crew.add()
        plain.end()
        assert min(step.step for step in plain.steps) > STEPS


def processes_of_a_pod_compute_alike() -> None:
    """Each has as many micro-batches; those beyond the pod's have no records that count."""
    lease = Lease("t", 1, "training", "train", 0, 0, 40, None, 60.0)
    assignment: Assignment = [(index, (Span(lease, 8 * index, 8),)) for index in range(5)]
    shares = [process_share(assignment, rank, 2) for rank in range(2)]
    assert [[index for index, _ in share.read] for share in shares] == [[0, 1, 2], [3, 4, 0]]
    assert shares[1].counted == [*assignment[3:], (0, ())]
    assert shares[0].read == shares[0].counted == assignment[:3]
    assert process_share([], 0, 2).read == []
    assert [len(process_share(assignment[:1], rank, 3).read) for rank in range(3)] == [1, 1, 1]


def news_reach_all_processes() -> None:
    """A round that is over stays so, and those before it are."""
    news = PodNews()
    other = PodNews(news.path)
    news.remove()
    assert not other.of(1).is_set
    news.write(300)
    news.write(2)
    assert other.of(300).is_set
    assert other.of(1).is_set
    assert not other.of(301).is_set
    with pytest.raises(edl.SettingError, match="share no temporary folder"):
        PodNews(news.path)


def what_cannot_be_sharded_is_refused() -> None:
    """In a line that says what to leave out or to call."""
    port = free_ports(1)[0]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))

    def refusal(model: Any, **options: Any) -> str:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.raises(edl.DataError) as info:
            Training(model, optimizer, records=8, batch_size=4, **options)
        return str(info.value)

    sharded = fully_shard(network(), mesh=mesh)
    assert refusal(sharded, local_steps=5).startswith("local_steps is given")
    assert refusal(sharded, constant_batch=False).startswith("constant_batch=False is given")
    assert "use LayerNorm" in refusal(fully_shard(network(normed=True), mesh=mesh))
    partly = network()
    fully_shard(partly[0], mesh=mesh)
    assert "parameter 2.weight is not sharded" in refusal(partly)
    wrapped = torch.nn.parallel.DistributedDataParallel(network())
    assert "wrapped in DistributedDataParallel" in refusal(wrapped)
    square = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    assert "mesh of several dimensions" in refusal(fully_shard(network(), mesh=square))


def processes_that_are_one_trainer_need_a_model_that_is_sharded() -> None:
    """Each of them would be the trainer, and end the one before; under an agent without --replica each has a name."""
    local = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    with pytest.raises(edl.DataError, match="2 processes of this pod are one trainer, pod-3"):
        check_alone("pod-3", local)
    check_alone("pod-3:1", local)
    check_alone("pod-3", {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    check_alone("pod-3", {})


def a_pod_lacks_the_state_as_long_as_one_of_its_processes_does() -> None:
    """All of its processes say the same to the other pods, so that all begin at the same step."""
    link: Any = None
    model: Any = None
    growths = [Growth(model, link, Round(1, 1, ()), None) for _ in "ab"]
    reports = [growths[0].report(), GrowthReport(lacking=True, saving=True)]
    assert reports[0] == GrowthReport(lacking=False, saving=False)
    for growth in growths:
        growth.adopt(reports)
        flags = StepFlags()
        growth.write_flags(flags)
        assert (growth.is_complete, flags.lacking, flags.saving) == (False, 1.0, 1.0)
        leaving = StepFlags(leaving=1.0)
        growth.write_flags(leaving)
        assert leaving.lacking == 0.0
        growth.adopt([growths[0].report()] * 2)
        growth.write_flags(flags)
        assert (growth.is_complete, flags.lacking, flags.saving) == (True, 0.0, 0.0)


FACTS = (
    pods_come_and_go,  # first: it forks
    processes_of_a_pod_compute_alike,
    news_reach_all_processes,
    what_cannot_be_sharded_is_refused,
    a_pod_lacks_the_state_as_long_as_one_of_its_processes_does,
    processes_that_are_one_trainer_need_a_model_that_is_sharded,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    load_lazy_parts()
    check(FACTS)
