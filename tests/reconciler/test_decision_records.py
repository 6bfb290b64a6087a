"""Every decision of the loop is in the DecisionLogs."""

from typing import Any

import pytest

from kube import errors, record_log, request
from kube.request import JOBS
from policy.names import ANNOTATION_MAX
from tests.reconciler.server import of
from tests.reconciler.world import Process, World

CREATIONS = of("POST", "/namespaces/ml/pods")


@pytest.fixture
def world() -> World:
    """A node with room for three trainers of 5 CPU."""
    return World(16)


def _kept(process: Process, about: str) -> list[Any]:
    """Code and figures of the one job's records, oldest first."""
    return [
        (record.code, record.figures)
        for record in process.records()
        if record.about.startswith(about)
    ]


def test_a_job_has_its_reason_with_figures(world: World, process: Process) -> None:
    """What it has, what it is to have, and what one more would need."""
    world.add_job("net", 1, 9)
    process.run(3)

    code, figures = _kept(process, "job ")[-1]
    assert code == "NoRoom"
    assert (figures["live"], figures["target"]) == (3, 3)
    assert figures["needs"]["cpu"] == "5"
    assert (figures["nodes"], figures["nearest"], figures["free"]["cpu"]) == (1, "n0", "1")


def test_a_quiet_cluster_makes_no_records(world: World, process: Process) -> None:
    """However many plans are made."""
    world.add_job("net", 1, 9)
    process.run(5)
    before = process.records()
    process.run(100)

    assert process.records() == before


def test_a_trainer_that_was_let_go_has_a_record(world: World, process: Process) -> None:
    """With the node it was on, which shows where capacity was freed."""
    world.add_job("net", 1, 3)
    process.run(3)
    world.change_job("net", {"metadata": {"annotations": {ANNOTATION_MAX: "2"}}})
    process.run(3)

    assert _kept(process, "pod ") == [("AboveMax", {"live": 3, "wanted": 2, "node": "n0"})]


def test_trainers_that_could_not_be_made_have_a_record(world: World, process: Process) -> None:
    """The answer of the API server and what it means, once, however often the creation is tried."""
    world.add_job("net", 1, 1)
    quota = errors.Forbidden("exceeded quota: small", status=403)
    world.api.fake.faults.fail_next(quota, 999, match=CREATIONS)
    process.run(20)

    refused = [figures for code, figures in _kept(process, "job ") if code == "Refused"]
    assert len(refused) == 1
    assert "exceeded quota: small" in refused[0]["error"]


def test_a_job_that_is_gone_is_forgotten(world: World, process: Process) -> None:
    """Its name may belong to another job tomorrow; its history stays."""
    world.add_job("net", 1, 1)
    process.run(2)
    before = process.records()
    world.ask(request.delete(JOBS, "ml", "net"))
    process.run(2)
    process.writer.round()

    assert before
    assert record_log.read(world.api, "ml", only_current=True) == []
