"""Records from DecisionLogs: what is new, and what was, page by page."""

from typing import Any

from kube import record_log, request
from kube.changes import Changes
from kube.request import DECISIONLOGS
from page.record_logs import RecordLogs
from page.record_query import RecordQuery, merged
from policy.records import CLUSTER, ELSEWHERE, Record
from tests.reconciler.server import Clock, Instant


class Logs:
    """Decision logs in an API server that is read when a test does so."""

    def __init__(self) -> None:
        clock = Clock()
        self.api = Instant(clock)
        self.logs = RecordLogs(self.api, Changes(), clock.seconds)

    def write(self, namespace: str, name: str, *records: Record, log: str = "history") -> None:
        """Writes a segment, or replaces it."""
        lines = [record_log.line(record) for record in records]
        fields = record_log.encode(lines, records[0].at_s, records[-1].at_s)
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {record_log.LABEL_LOG: log}},
            **fields,
        }
        if self._exists(namespace, name):
            self.api.ask(request.merge_patch(DECISIONLOGS, namespace, name, body))
        else:
            self.api.ask(request.create(DECISIONLOGS, namespace, body))

    def _exists(self, namespace: str, name: str) -> bool:
        names = {
            (o["metadata"]["namespace"], o["metadata"]["name"]) for o in self.api.all(DECISIONLOGS)
        }
        return (namespace, name) in names

    def look(self) -> tuple[list[str], set[str]]:
        """Codes of new records, and the jobs whose current decision is another."""
        self.logs.reflector.follow_once()
        new, changed = self.logs.drain()
        return [entry.record.code for entry in new], changed

    def codes(self, question: RecordQuery, *namespaces: str) -> tuple[list[str], bool]:
        """Codes of the records that were asked for, by whoever sees these namespaces."""
        logged, has_older = self.logs.history(question, lambda name: name in namespaces)
        return [entry.record.code for entry in logged], has_older


def _record(at_s: float, code: str, job: str = "ml/a", about: str = "") -> Record:
    return Record(at_s, about or f"job {job}", code, job=job, since_s=at_s)


def test_a_segment_that_grows_has_new_records() -> None:
    """Each is new once, also when the segment is written again, and when another begins."""
    logs = Logs()
    logs.write("ml", "s1", _record(1, "A"))
    assert logs.look()[0] == ["A"]

    logs.write("ml", "s1", _record(1, "A"), _record(2, "B"))
    assert logs.look()[0] == ["B"]
    logs.write("ml", "s2", _record(3, "C"))
    logs.write("ml", "s1", _record(1, "A"), _record(2, "B"), _record(2.5, "B2"))
    assert logs.look()[0] == ["B2", "C"]
    assert logs.look()[0] == []
    logs.api.ask(request.delete(DECISIONLOGS, "ml", "s1"))
    assert logs.look()[0] == []
    assert logs.codes(RecordQuery(), "ml")[0] == ["C"]


def test_the_current_decision_about_a_job() -> None:
    """Of several segments; a job whose decision is gone or another is named."""
    logs = Logs()
    logs.write(
        "ml", "edl-current-0", _record(1, "NoRoom"), _record(1, "AtMax", "ml/b"), log="current"
    )
    assert logs.look() == ([], {"ml/a", "ml/b"})
    newest = logs.logs.current("ml/a")
    assert newest is not None
    assert newest.code == "NoRoom"

    logs.write("ml", "edl-current-0", _record(2, "AtMax"), log="current")
    assert logs.look() == ([], {"ml/a", "ml/b"})
    assert logs.logs.current("ml/b") is None
    assert logs.logs.namespaces == {"ml"}
    logs.api.ask(request.delete(DECISIONLOGS, "ml", "edl-current-0"))
    assert logs.look() == ([], {"ml/a"})
    assert logs.logs.namespaces == frozenset()


def test_history_goes_back_page_by_page() -> None:
    """The newest first, over all segments and namespaces that are seen, none twice, none left out."""
    logs = Logs()
    for index in range(40):
        namespace = "ml" if index % 2 else "vision"
        first = 10.0 * index
        batch = [_record(first + n, f"{index}.{n}", f"{namespace}/a") for n in range(5)]
        logs.write(namespace, f"s{index:02}", *batch)
    logs.look()
    codes: list[str] = []
    before_s = float("inf")
    has_older = True
    while has_older:
        logged, has_older = logs.logs.history(
            RecordQuery(before_s=before_s, limit=7), lambda name: name == "ml"
        )
        codes = [entry.record.code for entry in logged] + codes
        before_s = logged[0].record.at_s

    assert codes == [f"{index}.{n}" for index in range(1, 40, 2) for n in range(5)]


def test_a_question_about_a_job_reads_its_own_records() -> None:
    """Not those of a job whose name begins alike; with the bursts to which it gave trainers."""
    logs = Logs()
    burst = Record(5, "reclaim x", "Reclaimed", figures={"trainers": {"ml/a": {"count": 2}}})
    logs.write("ml", "s1", _record(1, "A"), _record(2, "B", "ml/a-2"), burst)
    logs.write("vision", "s1", _record(3, "C", "vision/a"))
    released = Record(4, "pod ml/a-trainer-1", "ServicesFirst", job="ml/a", since_s=4)
    logs.write(CLUSTER, "s1", released)
    logs.look()

    assert logs.codes(RecordQuery(job="ml/a"), "ml", "vision", CLUSTER)[0] == [
        "A",
        "ServicesFirst",
        "Reclaimed",
    ]
    assert logs.codes(RecordQuery(job="ml/a"), "ml")[0] == ["A", "Reclaimed"]
    assert logs.codes(RecordQuery(about="pod ml/a-trainer-1"), "ml", CLUSTER)[0] == [
        "ServicesFirst"
    ]
    assert logs.codes(RecordQuery(namespace="vision"), "ml", "vision")[0] == ["C"]


def test_of_two_copies_the_one_with_all_names_counts() -> None:
    """The log of a namespace lacks names of others, that of the cluster has them."""
    logs = Logs()
    whole = Record(
        1, "pod ml/a-trainer-1", "ServicesFirst", figures={"service": "shop/web"}, job="ml/a"
    )
    masked = Record(
        1, "pod ml/a-trainer-1", "ServicesFirst", figures={"service": ELSEWHERE}, job="ml/a"
    )
    logs.write("ml", "s1", masked)
    logs.write(CLUSTER, "s1", whole)
    logs.look()
    (both,), _ = logs.logs.history(RecordQuery(), lambda _: True)
    (own,), _ = logs.logs.history(RecordQuery(), lambda name: name == "ml")

    assert both.record.figures == {"service": "shop/web"}
    assert own.record.figures == {"service": ELSEWHERE}
    assert merged([own, both]) == [both]


def test_objects_of_strangers_are_left_out() -> None:
    """A segment of another version, or with something else in it, has no records."""
    logs = Logs()
    for index, fields in enumerate(
        [{"version": 2, "records": "x"}, {"version": 1, "records": "!"}, {}]
    ):
        body = {"metadata": {"name": f"s{index}"}, **fields}
        logs.api.ask(request.create(DECISIONLOGS, "ml", body))

    assert logs.look() == ([], set())
    assert logs.codes(RecordQuery(), "ml") == ([], False)
