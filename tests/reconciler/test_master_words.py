"""What the loop does on the word of a master, and on its silence; from a cluster in memory."""

from typing import Any

from kube import errors, request
from kube.request import PODS
from policy.cluster.snapshot import Phase, Pod
from policy.names import Tier
from reconciler.masters.reports import MasterReport, ReportedState
from tests.reconciler.server import of
from tests.reconciler.world import Process, World


def _master_hosts(world: World) -> list[Pod]:
    return [pod for pod in world.pods("net") if pod.master and not pod.deleting]


def _says(
    process: Process, world: World, state: ReportedState, reason: str = "", **fields: Any
) -> None:
    """Sets the master's report, as if it had just been polled."""
    report = MasterReport(state, world.clock.now_s, reason, **fields)
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    poller._reports[world.job("net").uid] = report  # noqa: SLF001 - see above


def _conditions(world: World) -> dict[str, str]:
    return {c.type: c.message for c in world.job("net").status.conditions if c.status == "True"}


def test_the_end_is_the_masters_word(world: World, process: Process) -> None:
    """Trainers that still run after a few seconds are removed, and the Job is complete."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    _says(process, world, ReportedState.DONE)
    process.run(3)
    lingering = len(world.running("net"))
    process.run(5)

    assert lingering == 2
    assert world.running("net") == []
    assert _conditions(world)["Complete"] == "the master reported that all work is done"


def test_a_master_may_give_up(world: World, process: Process) -> None:
    """The Job fails, with its reason."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    _says(process, world, ReportedState.FAILED, "too many tasks were dropped")
    process.run(3)

    assert (
        _conditions(world)["Failed"] == "the master reported failure: too many tasks were dropped"
    )
    assert world.running("net") == []


def test_a_master_that_gives_no_reason(world: World, process: Process) -> None:
    """The condition reports it."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    _says(process, world, ReportedState.FAILED)
    process.run(3)

    assert "no reason given" in _conditions(world)["Failed"]


def test_success_of_trainers_alone_ends_nothing(world: World, process: Process) -> None:
    """Nor are they replaced at once: the master may be about to say that all is done."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    (host,) = _master_hosts(world)
    other = next(pod for pod in world.running("net") if not pod.master)
    world.end(other, Phase.SUCCEEDED)
    process.run(3)
    waiting = len(world.running("net")), "Complete" in _conditions(world)
    _says(process, world, ReportedState.DONE)
    world.end(host, Phase.SUCCEEDED)
    process.run(2)

    assert waiting == (1, False)
    assert "Complete" in _conditions(world)


def test_a_trainer_that_stops_early_is_replaced_later(world: World, process: Process) -> None:
    """After a back-off, and an event explains what a trainer should do."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    other = next(pod for pod in world.running("net") if not pod.master)
    world.end(other, Phase.SUCCEEDED)
    process.run(3)
    _says(process, world, ReportedState.WORK)
    process.run(12)
    process.write_events()

    assert len(world.running("net")) == 2
    assert world.job("net").accounting.succeeded == 1
    (text,) = world.events("TrainersEndedEarly")
    assert text == (
        "1 trainer exited with code 0 before the master reported done. Trainers are replaced after "
        "a back-off; let them run until the master reports done"
    )


def test_a_poll_in_the_second_of_an_end_says_nothing_about_it(
    world: World, process: Process
) -> None:
    """Kubelets round times down: the trainer may have ended later, when the master was done."""
    world.add_job("net", 2, 2, master=True)
    process.run(3)
    other = next(pod for pod in world.running("net") if not pod.master)
    world.end(other, Phase.SUCCEEDED)
    world.clock.advance(0.9)
    _says(process, world, ReportedState.WORK)
    process.run(3)
    process.write_events()

    assert world.job("net").accounting.succeeded == 1
    assert world.events("TrainersEndedEarly") == []


def _uncommitted(world: World) -> list[float]:
    """What is written on the job's trainers, by id."""
    return [pod.uncommitted_s for pod in world.pods("net")]


def test_uncommitted_work_is_written_on_trainers(world: World, process: Process) -> None:
    """In steps of five seconds, and only what differs by as much."""
    world.add_job("net", 2, 2, master=True)
    process.run(6)
    _says(process, world, ReportedState.WORK, uncommitted={0: 3.0, 1: 13.7})
    process.run(6)
    first = _uncommitted(world)
    _says(process, world, ReportedState.WORK, uncommitted={1: 1.0})
    process.run(6)

    assert first == [0.0, 10.0]
    assert _uncommitted(world) == [0.0, 0.0]


def test_uncommitted_work_that_cannot_be_written_is_tried_again(
    world: World, process: Process
) -> None:
    """A pod may be deleted by then; remaining differences are written in the next tick."""
    world.add_job("net", 1, 1, master=True)
    process.run(6)
    not_found = errors.NotFound("gone", status=404)
    world.api.fake.faults.fail_next(not_found, match=of("PATCH", "/pods/net-trainer-0"))
    _says(process, world, ReportedState.WORK, uncommitted={0: 13.7})
    process.run(6)
    refused = _uncommitted(world)
    process.run(6)

    assert refused == [0.0]
    assert _uncommitted(world) == [10.0]


def test_another_leader_is_written_at_once(world: World, process: Process) -> None:
    """On the new and on the old one, without waiting for the turn of the others."""
    world.add_job("net", 3, 3, master=True)
    process.run(6)
    _says(process, world, ReportedState.WORK, leader=0, uncommitted={0: 10.0, 2: 30.0})
    process.run(6)
    before = _uncommitted(world)
    _says(process, world, ReportedState.WORK, leader=1, uncommitted={1: 10.0, 2: 90.0})
    process.round()
    at_once = _uncommitted(world)
    process.run(6)

    assert before == [10.0, 0.0, 30.0]
    assert at_once == [0.0, 10.0, 30.0]
    assert _uncommitted(world) == [0.0, 10.0, 90.0]


def test_the_leader_is_the_last_victim_of_a_burst(world: World, process: Process) -> None:
    """From the master's report to the plan's choice, in one more tick."""
    world.add_job("net", 1, 6, master=True)
    process.run(8)
    surplus = [pod for pod in world.running("net") if pod.tier is Tier.SURPLUS]
    leader = surplus[0]
    _says(
        process,
        world,
        ReportedState.WORK,
        leader=leader.trainer_id,
        uncommitted={leader.trainer_id: 10.0},
    )
    process.round()
    assert any(_uncommitted(world))
    world.add_services(4, 3)
    process.run(3)

    assert leader.uid in {pod.uid for pod in world.running("net")}
    assert len(world.running("net")) < 5


def _pass(process: Process, world: World, seconds: int) -> None:
    """Time without changes, a tick now and then."""
    for _ in range(seconds // 10):
        world.clock.advance(10)
        process.round()


def test_who_leads_no_more_asks_no_master(world: World) -> None:
    """The one that leads now does; both together would ask twice as often."""
    leads = [True]
    process = Process(world, lambda: leads[0])
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    world.add_job("net", 1, 1, master=True)
    process.run(2)
    before = list(poller._targets.values())  # noqa: SLF001 - see above
    leads[0] = False
    process.round()
    after = dict(poller._targets)  # noqa: SLF001 - see above
    process.stop()

    assert [target.config_map for target in before] == ["net-edl-master"]
    assert after == {}


def test_a_master_is_asked_at_once_when_a_trainer_has_succeeded(
    world: World, process: Process
) -> None:
    """It may be done by then; it is polled at the pod that hosts it, if any."""
    poller = process.loop.components.masters._poller  # noqa: SLF001 - its thread is tested with real sockets
    world.add_job("net", 2, 2, master=True)
    process.round()
    (nowhere,) = poller._targets.values()  # noqa: SLF001 - see above
    process.run(3)
    body = {"status": {"podIP": "10.1.2.3"}}
    host = "net-trainer-0"
    world.ask(request.merge_patch(PODS, "ml", host, body, subresource="status"))
    process.round()
    (running,) = poller._targets.values()  # noqa: SLF001 - see above
    world.end(next(pod for pod in world.running("net") if not pod.master), Phase.SUCCEEDED)
    process.run(2)
    (succeeded,) = poller._targets.values()  # noqa: SLF001 - see above

    assert (nowhere.address, nowhere.generation) == ("", 0)
    assert (running.address, running.generation) == ("10.1.2.3", 0)
    assert (succeeded.address, succeeded.generation) == ("10.1.2.3", 1)
    assert running.token == succeeded.token != ""


def test_a_silent_master_is_told_of_once(world: World, process: Process) -> None:
    """After a minute, with how long it is and with what to look at."""
    world.add_job("net", 1, 1, master=True)
    process.run(1)
    _pass(process, world, 170)
    process.write_events()

    assert world.events("MasterSilent") == [
        "The master has not answered for 60 s: see kubectl -n ml logs net-trainer-0 -c edl-master"
    ]


def test_a_master_with_another_token_is_told_of_once(world: World, process: Process) -> None:
    """Its job goes on; the event names the Secret, since nothing is wrong with the master's log."""
    uid = world.add_job("net", 1, 1, master=True)["metadata"]["uid"]
    process.run(1)
    process.loop.components.masters._poller._refusing.add(uid)  # noqa: SLF001 - its thread is tested with real sockets
    _pass(process, world, 170)
    process.write_events()

    (text,) = world.events("MasterSilent")
    assert text == (
        "The master's token differs from that in Secret net-edl-master, so EDL cannot read its "
        "status. The job continues; EDL reads its end from its ConfigMap"
    )


def test_a_master_that_answers_is_not_told_of(world: World, process: Process) -> None:
    """However long ago its pod started: false alarms make people ignore warnings."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    for _ in range(30):
        _says(process, world, ReportedState.WORK)
        _pass(process, world, 50)
    process.write_events()

    assert world.events("MasterSilent") == []


def test_a_master_that_falls_silent_again_is_told_of_again(world: World, process: Process) -> None:
    """It answered in between; the time counts from its last report."""
    world.add_job("net", 1, 1, master=True)
    process.run(3)
    _pass(process, world, 100)
    _says(process, world, ReportedState.WORK)
    _pass(process, world, 100)
    process.write_events()

    assert len(world.events("MasterSilent")) == 2


def test_a_master_whose_pod_does_not_run_is_not_told_of(world: World, process: Process) -> None:
    """It waits for a node, or for its image, which is reported elsewhere."""
    world.add_job("net", 1, 1, master=True)
    process.round()
    _pass(process, world, 200)
    process.write_events()

    assert world.events("MasterSilent") == []
