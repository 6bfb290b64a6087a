"""The writer of the decision log while the API server refuses, and at its limits."""

from collections.abc import Callable

import pytest

from kube import errors, record_log, request
from kube.request import DECISIONLOGS, Request
from policy.document.model import Policy
from policy.records import CLUSTER, Record
from reconciler.records.inbox import RecordInbox
from reconciler.records.writer import RecordWriter
from tests.reconciler.waiting import until
from tests.reconciler.world import World

AWAY = errors.Unavailable("away", status=503)


class Desk:
    """A writer, its inbox, and whether it leads."""

    def __init__(self, world: World, policy: Callable[[], Policy] = Policy) -> None:
        self.world, self.leads = world, True
        self.inbox = RecordInbox()
        self.writer = RecordWriter(
            world.api,
            self.inbox,
            lambda: self.leads,
            policy=policy,
            epoch_s=world.clock.seconds,
            keep_s=100.0,
        )

    def put(self, namespace: str, code: str) -> None:
        """Puts a record of now."""
        self.inbox.put(namespace, Record(self.world.clock.seconds(), "job ml/net", code, "x"))

    def round(self, later_s: float = 0.0) -> None:
        """One round, that much later."""
        self.world.clock.advance(later_s)
        self.writer.round()

    def codes(self, namespace: str) -> list[str]:
        """What the API server has."""
        return [record.code for record in record_log.read(self.world.api, namespace)]


@pytest.fixture
def desk() -> Desk:
    """One that leads."""
    return Desk(World())


def _writes_in(namespace: str) -> Callable[[Request], bool]:
    return lambda sent: sent.method != "GET" and f"/namespaces/{namespace}/" in sent.path


def test_a_namespace_that_is_refused_waits_and_holds_up_no_other(desk: Desk) -> None:
    """Its record is written after the pause, and each failure makes the pause longer."""
    desk.world.api.fake.faults.fail_next(AWAY, 2, match=_writes_in("a"))
    desk.put("a", "First")
    desk.put("b", "First")
    desk.round()
    at_once = (desk.codes("a"), desk.codes("b"))
    desk.round(1.9)  # too early: not sent, so the second refusal is still to come
    desk.round(0.2)  # refused again: now 4 s
    desk.round(3.9)
    in_pause = desk.codes("a")
    desk.round(0.2)

    assert at_once == ([], ["First"])
    assert in_pause == []
    assert desk.codes("a") == ["First"]
    assert (desk.writer.written, desk.writer.dropped) == (2, 0)


def test_nothing_is_written_before_the_stored_log_was_read(desk: Desk) -> None:
    """Reading is tried again after a pause; what came meanwhile is written then."""
    desk.world.api.fake.faults.fail_next(AWAY, 1, match=lambda sent: sent.method == "GET")
    desk.put("ml", "Early")
    desk.round()
    desk.round(1.9)
    before = (desk.codes("ml"), desk.writer.segments)
    desk.round(0.2)

    assert before == ([], 0)
    assert desk.codes("ml") == ["Early"]


def test_segments_of_a_later_leader_come_after_those_of_an_earlier_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second later: none is written over, and they are read in order."""
    monkeypatch.setattr("reconciler.records.namespace_log.SEGMENT_BYTES", 1)
    desk.put("ml", "First")
    desk.round()
    for code in ("Second", "Third"):
        later = Desk(desk.world)
        later.world.clock.advance(1.0)
        later.put("ml", code)
        later.round()

    assert desk.codes("ml") == ["First", "Second", "Third"]


def test_more_namespaces_than_the_limit_have_no_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their records are counted as dropped."""
    monkeypatch.setattr("reconciler.records.writer._MAX_NAMESPACES", 2)
    for namespace in ("a", "b", "c"):
        desk.put(namespace, "First")
    desk.round()

    assert [desk.codes(namespace) for namespace in ("a", "b", "c")] == [["First"], ["First"], []]
    assert (desk.writer.written, desk.writer.dropped) == (2, 1)


def test_where_the_policy_does_not_let_edl_act_nothing_is_written() -> None:
    """But for the records of the cluster, which are EDL's own."""
    desk = Desk(World(), lambda: Policy.model_validate({"namespaces": ["ml"]}))
    for namespace in ("ml", "shop", CLUSTER):
        desk.put(namespace, "First")
    desk.round()

    assert [desk.codes(name) for name in ("ml", "shop", CLUSTER)] == [["First"], [], ["First"]]


def test_who_loses_the_lead_gives_up_what_is_not_written(desk: Desk) -> None:
    """It is counted, also after a later lead, which reads again what others have stored."""
    desk.world.api.fake.faults.fail_next(AWAY, 1, match=_writes_in("a"))
    desk.put("a", "Lost")
    desk.put("b", "Kept")
    desk.round()
    desk.leads = False
    desk.put("b", "NotLed")
    desk.round(10)
    without_lead = (desk.writer.dropped, desk.writer.segments)
    desk.leads = True
    desk.put("b", "Again")
    desk.round(10)

    assert without_lead == (1, 0)
    assert (desk.codes("a"), desk.codes("b")) == ([], ["Kept", "Again"])
    assert desk.writer.dropped == 1


def test_a_segment_that_somebody_else_has_deleted_is_deleted(desk: Desk) -> None:
    """The next one goes, too; nothing is asked for again."""
    desk.put("ml", "Old")
    desk.round()
    (stored,) = desk.world.api.all(DECISIONLOGS)
    desk.world.ask(request.delete(DECISIONLOGS, "ml", stored["metadata"]["name"]))
    desk.round(101)
    sent = len(desk.world.api.writes)
    desk.round(10)

    assert len(desk.world.api.writes) == sent
    assert desk.writer.dropped == 0


def test_an_error_of_ours_ends_one_round_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its trace, and the next round writes."""

    def fails() -> list[object]:
        raise OverflowError("too large")

    with monkeypatch.context() as patch:
        patch.setattr(desk.inbox, "drain", fails)
        desk.writer.try_round()
    desk.put("ml", "Later")
    desk.writer.try_round()

    assert [record.message for record in caplog.records] == ["could not write records"]
    assert caplog.records[0].exc_info is not None
    assert desk.codes("ml") == ["Later"]


def test_listeners_hear_of_every_record(desk: Desk) -> None:
    """With its namespace, on the writer's thread."""
    heard: list[tuple[str, str]] = []
    desk.writer.listeners.append(lambda namespace, record: heard.append((namespace, record.code)))
    desk.put("ml", "First")
    desk.put("shop", "Second")
    desk.round()

    assert heard == [("ml", "First"), ("shop", "Second")]


def test_its_thread_writes_what_is_there_when_it_stops(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rounds, too; a writer that was never started stops as well."""
    monkeypatch.setattr("reconciler.records.writer.EVERY_S", 0.001)
    desk.writer.stop()
    other = Desk(desk.world)
    other.writer.start()
    other.put("ml", "First")
    until(lambda: other.writer.written)
    monkeypatch.setattr("reconciler.records.writer.EVERY_S", 600.0)
    other.put("ml", "Last")
    other.writer.stop()

    assert other.codes("ml") == ["First", "Last"]
