"""Records of decisions and observations lie in the API server, bounded, and outlive their leader."""

from dataclasses import replace
from typing import Any

import pytest

from kube import errors, record_log, request
from kube.request import Request
from policy.cluster.snapshot import Phase
from policy.records import CLUSTER, ELSEWHERE, Record
from reconciler.records.inbox import RecordInbox
from reconciler.records.namespace_log import SEGMENT_BYTES
from reconciler.records.writer import MAX_WRITES, RecordWriter
from tests.reconciler.world import Process, World


def _of_log(api_request: Request) -> bool:
    return "/decisionlogs" in api_request.path


@pytest.fixture
def world() -> World:
    """Two nodes with room for three trainers each."""
    return World(16, 16)


def _codes(records: list[Record], kind: str) -> list[str]:
    return [record.code for record in records if record.kind == kind]


def test_what_a_leader_has_decided_is_known_after_its_death(world: World) -> None:
    """The next one goes on with the same records: nothing is told twice, and since when is kept."""
    first = Process(world)
    world.add_job("net", 1, 9)
    first.run(5)
    before = first.records()
    waits = [record for record in before if record.code == "NoRoom"]
    world.clock.advance(500)
    second = Process(world)
    second.run(3)
    after = second.records()

    assert waits
    assert [record for record in after if record.code == "NoRoom"][-1].since_s == waits[0].since_s
    assert _codes(after, "job") == _codes(before, "job")
    first.stop()
    second.stop()


def test_a_release_for_a_service_is_told_without_the_names_of_other_namespaces(
    world: World, process: Process
) -> None:
    """The job's namespace has the release; who asked stands in the records of the cluster."""
    world.add_job("net", 1, 6)
    process.run(5)
    process.records()
    world.add_services(1, cpu=6)
    process.run(8)
    own = [r for r in process.records() if r.code == "ServicesFirst"]
    full = [r for r in process.records(CLUSTER) if r.code == "ServicesFirst"]

    assert own
    assert {record.figures["service"] for record in own} == {ELSEWHERE}
    assert all("shop" not in str(record.to_json()) for record in process.records())
    assert {str(record.figures["service"]).partition("/")[0] for record in full} == {"shop"}
    assert {(r.at_s, r.about) for r in own} == {(r.at_s, r.about) for r in full}


def test_neither_events_nor_conditions_have_the_names_of_other_namespaces(
    world: World, process: Process
) -> None:
    """Whoever may read the job's namespace reads them, as its records."""
    world.add_job("net", 1, 6)
    process.run(5)
    world.add_services(1, cpu=6)
    process.run(8)
    process.write_events()
    (released,) = world.events("TrainersReleased")

    assert "ServicesFirst (another namespace needs 6 cpu)" in released
    assert "shop" not in str(world.api.all(request.JOBS))


def test_a_burst_is_one_record_with_stages(world: World, process: Process) -> None:
    """Who asked, who gave, how long it took; each namespace sees its own part."""
    world.add_job("net", 1, 6)
    process.run(5)
    world.add_services(2, cpu=6)
    process.run(20)
    (burst,) = [r for r in process.records(CLUSTER) if r.code == "Reclaimed"]
    (of_job,) = [r for r in process.records("ml") if r.code == "Reclaimed"]
    (of_services,) = [r for r in process.records("shop") if r.code == "Reclaimed"]

    assert burst.figures["services"]["shop/web-*"]["count"] == 2
    assert burst.figures["trainers"]["ml/net"]["count"] >= 1
    assert set(burst.figures["stages"]) == {"decide", "free", "start", "total"}
    assert set(of_job.figures["services"]) == {ELSEWHERE}
    assert set(of_job.figures["trainers"]) == {"ml/net"}
    assert set(of_services.figures["trainers"]) == {ELSEWHERE}
    assert burst.about == of_job.about == of_services.about


def test_figures_alone_make_no_history(world: World, process: Process) -> None:
    """They are kept with the newest decision, once a minute."""
    world.add_job("net", 1, 9)
    process.run(5)
    count = len([r for r in process.records() if r.code == "NoRoom"])
    writes = len(world.api.writes)
    for _ in range(30):
        process.run(1)
        process.records()

    assert len([r for r in process.records() if r.code == "NoRoom"]) == count
    assert [w for w in world.api.writes[writes:] if "decisionlogs" in w.path] == []


def test_ends_of_jobs_are_kept(world: World, process: Process) -> None:
    """Also of one that is deleted: its records remain, and it is no current job any more."""
    world.add_job("net", 1, 2)
    process.run(5)
    process.records()
    world.ask(request.delete(request.JOBS, "ml", "net"))
    process.run(3)
    process.records()
    world.clock.advance(10)
    process.writer.round()

    assert _codes(process.records(), "job")[-1] == "JobDeleted"
    assert record_log.read(world.api, "ml", only_current=True) == []


def test_jobs_that_go_while_nobody_leads_are_no_current_jobs(world: World) -> None:
    """The next leader drops them once it has made a plan."""
    first = Process(world)
    world.add_job("net", 1, 2)
    world.add_job("old", 1, 2)
    first.run(3)
    first.records()
    first.stop()
    world.ask(request.delete(request.JOBS, "ml", "old"))
    world.clock.advance(10)
    second = Process(world)
    for _ in range(3):
        second.run(2)
        second.records()
        world.clock.advance(10)
    second.stop()

    current = record_log.read(world.api, "ml", only_current=True)
    assert {record.job for record in current if record.job} == {"ml/net"}


def test_who_does_not_lead_writes_nothing(world: World) -> None:
    """And tells everything anew where it leads later."""
    leads = [False]
    process = Process(world, leads=lambda: leads[0])
    world.add_job("net", 1, 9)
    process.run(5)
    assert process.records() == []
    leads[0] = True
    process.run(5)
    assert _codes(process.records(), "job")
    process.stop()


def test_a_failing_api_server_costs_the_loop_nothing(world: World, process: Process) -> None:
    """Records wait, and are written when it is well again."""
    world.api.fake.faults.fail_next(errors.Unavailable("away", status=503), 999, match=_of_log)
    world.add_job("net", 1, 9)
    process.run(5)
    process.writer.round()
    assert process.writer.written == 0
    world.api.fake.faults.clear()
    assert record_log.read(world.api, "ml") == []
    world.clock.advance(400)
    process.writer.round()

    assert "NoRoom" in _codes(process.records(), "job")


def test_a_trainer_that_failed_has_a_record(world: World, process: Process) -> None:
    """With its node and exit code."""
    world.add_job("net", 1, 2)
    process.run(5)
    pod = world.pods("net")[0]
    world.end(pod, Phase.FAILED)
    process.run(2)
    (record,) = [r for r in process.records() if r.code == "TrainerFailed"]

    assert record.about == f"pod ml/{pod.name}"
    assert record.job == "ml/net"
    assert (record.figures["node"], record.figures["exit"]) == (pod.node, "1")


def _record(number: int, text: str = "x") -> Record:
    return Record(1000.0 + number, "job ml/net", f"Code{number}", text, job="ml/net")


def test_namespaces_of_the_past_take_no_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where namespaces come and go, those of today have their log."""
    monkeypatch.setattr("reconciler.records.writer._MAX_NAMESPACES", 3)
    inbox = RecordInbox()
    writer = RecordWriter(world.api, inbox, lambda: True, epoch_s=world.clock.seconds, keep_s=60.0)
    writer.round()
    for number in range(6):
        record = Record(world.clock.seconds(), "job ml/net", "Code", job="ml/net")
        inbox.put(f"team-{number}", record)
        writer.round()
        world.clock.advance(50)

    assert (writer.written, writer.dropped) == (6, 0)


def test_a_round_sends_a_bounded_number_of_requests(world: World) -> None:
    """Namespaces take turns."""
    inbox = RecordInbox()
    forever_s = float("inf")  # the records are old
    writer = RecordWriter(
        world.api, inbox, lambda: True, epoch_s=world.clock.seconds, keep_s=forever_s
    )
    writer.round()
    for number in range(60):
        inbox.put(f"team-{number}", _record(number))
    counts = []
    for _ in range(4):
        before = len(world.api.writes)
        writer.round()
        counts.append(len([w for w in world.api.writes[before:] if w.method == "POST"]))

    assert counts == [MAX_WRITES] * 3 + [0]
    assert writer.written == 60


def test_a_full_inbox_drops_and_counts() -> None:
    """The loop never waits for the writer."""
    inbox = RecordInbox(max_waiting=2)
    for number in range(5):
        inbox.put("ml", _record(number))

    assert inbox.dropped == 3
    assert [entry.record for entry in inbox.drain()] == [_record(0), _record(1)]


def test_the_log_of_a_namespace_that_is_gone_is_given_up(world: World) -> None:
    """Its records count as dropped; others are written."""
    inbox = RecordInbox()
    writer = RecordWriter(world.api, inbox, lambda: True, epoch_s=world.clock.seconds)
    gone = errors.NotFound('namespaces "gone" not found', status=404)
    world.api.fake.faults.fail_next(gone, 2, match=lambda r: "/namespaces/gone/" in r.path)
    inbox.put("gone", _record(0))
    inbox.put("ml", _record(1))
    writer.round()

    assert (writer.written, writer.dropped) == (1, 1)
    assert record_log.read(world.api, "gone") == []


def test_only_records_with_a_text_are_parsed() -> None:
    """Of thousands of jobs one is asked for."""
    lines = [record_log.line(_record(number, f"text-{number}")) for number in range(20)]
    segment = record_log.encode(lines, 1000.0, 1019.0)

    assert [record.code for record in record_log.decode(segment, "text-1")] == [
        f"Code{number}" for number in (1, *range(10, 20))
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"records": "no base64!"},
        {"records": "bm8gZ3ppcA=="},
        {"records": None},
    ],
)
def test_what_is_no_segment_has_no_records(change: dict[str, Any]) -> None:
    """Of another version, or written by somebody else; a part that is cut off is left out."""
    segment = record_log.encode([record_log.line(_record(1)), b"{}", b"[", b"3"], 1.0, 2.0)

    assert record_log.decode(segment) == [replace(_record(1), since_s=_record(1).at_s)]
    assert record_log.decode({**segment, **change}) == []


def test_segments_of_all_namespaces_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of all goes first."""
    monkeypatch.setattr("reconciler.records.writer.MAX_SEGMENTS", 5)
    inbox = RecordInbox()
    forever_s = float("inf")  # the records are old
    writer = RecordWriter(
        world.api, inbox, lambda: True, epoch_s=world.clock.seconds, keep_s=forever_s
    )
    for number in range(12):
        inbox.put(f"team-{number % 3}", _record(number, "x" * SEGMENT_BYTES))
        writer.round()
    writer.round()
    left = {record.code for record in record_log.read(world.api)}

    assert left == {f"Code{number}" for number in range(7, 12)}
