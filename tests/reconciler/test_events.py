import threading
from dataclasses import replace
from typing import NoReturn

from kube import errors
from kube.request import EVENTS, Request
from reconciler.records.events import Event, EventRecorder
from tests.reconciler.server import Clock, Instant
from tests.reconciler.waiting import LIMIT_S, until
from tests.support.builders import job

JOB = job("net")


def _event(message: str = "made 1", owner: str = "net", namespace: str = "ml") -> Event:
    about = replace(JOB, name=owner, uid=f"uid-{owner}", namespace=namespace)
    return Event(about, "TrainersMade", message)


def _written(recorder: EventRecorder, api: Instant) -> list[str]:
    """Messages that arrive; begins and ends the recorder."""
    recorder.start()
    return _stopped(recorder, api)


def _stopped(recorder: EventRecorder, api: Instant) -> list[str]:
    """Messages that have arrived at its end."""
    recorder.stop()
    until(lambda: not recorder._thread.is_alive())  # noqa: SLF001 - `stop` does not wait for ever
    return [event["message"] for event in api.all(EVENTS)]


def _recorder() -> tuple[EventRecorder, Instant]:
    clock = Clock()
    api = Instant(clock)
    return EventRecorder(api, "edl-test", clock.now), api


def test_an_event_hangs_on_its_job() -> None:
    """So that `kubectl describe job` shows it, with type, time and reporter."""
    recorder, api = _recorder()
    recorder.record(replace(_event(), warning=True), 0.0)
    _written(recorder, api)
    (event,) = api.all(EVENTS)

    assert event["involvedObject"]["uid"] == "uid-net"
    assert event["metadata"]["namespace"] == "ml"
    assert (event["type"], event["reason"]) == ("Warning", "TrainersMade")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2027-01-15T08:00:00Z"
    assert event["source"] == {"component": "edl-test"}


def test_within_a_span_events_of_one_reason_are_counted() -> None:
    """The first is written at once; the next after the span counts the repetitions."""
    recorder, api = _recorder()
    for second in range(10):
        recorder.record(_event(f"made {second}"), float(second))
    recorder.record(_event("made more"), 10.0)
    recorder.record(_event("made again"), 20.0)

    assert sorted(_written(recorder, api)) == [
        "made 0",
        "made again",
        "made more (repeated 9 times since the last event)",
    ]


def test_jobs_and_reasons_have_spans_of_their_own() -> None:
    """One job's news does not hide another's."""
    recorder, api = _recorder()
    recorder.record(_event("a"), 0.0)
    recorder.record(_event("b", owner="other"), 0.0)
    recorder.record(replace(_event("c"), reason="TrainersReleased"), 0.0)

    assert sorted(_written(recorder, api)) == ["a", "b", "c"]


def test_a_forgotten_job_starts_anew() -> None:
    """Nothing is kept of deleted jobs."""
    recorder, api = _recorder()
    recorder.record(_event("first"), 0.0)
    recorder.record(_event("held"), 1.0)
    recorder.record(_event("other", owner="other"), 1.0)
    recorder.forget(JOB)
    recorder.record(_event("again"), 2.0)
    recorder.record(_event("held too", owner="other"), 2.0)

    assert sorted(_written(recorder, api)) == ["again", "first", "other"]


def test_what_the_queue_cannot_take_is_counted() -> None:
    """A slow API server never delays a plan, and memory stays bounded; nor does the stop wait."""
    recorder, api = _recorder()
    for number in range(1003):
        recorder.record(_event(owner=f"j{number}", namespace=f"n{number % 2}"), 0.0)

    assert recorder.dropped == 3
    assert len(_written(recorder, api)) <= 1000


def test_events_of_one_namespace_leave_room_for_those_of_others() -> None:
    """A namespace has a half of what waits, and that again once it is written."""
    recorder, api = _recorder()
    for number in range(1003):
        recorder.record(_event(owner=f"j{number}", namespace="many"), 0.0)
    recorder.record(_event("made 7", owner="other", namespace="few"), 0.0)
    dropped = recorder.dropped
    recorder.start()
    until(lambda: len(api.all(EVENTS)) == 501)
    recorder.record(_event("made 8", owner="new", namespace="many"), 0.0)
    messages = _stopped(recorder, api)

    assert dropped == 503
    assert len(messages) == 502
    assert {"made 7", "made 8"} <= set(messages)


def test_an_event_that_cannot_be_written_is_let_go() -> None:
    """The ones after it are written."""
    recorder, api = _recorder()
    api.fake.faults.fail_next(errors.Forbidden("terminating", status=403))
    recorder.record(_event("lost"), 0.0)
    recorder.record(_event("kept", owner="other"), 0.0)

    assert _written(recorder, api) == ["kept"]


def test_a_long_message_is_cut() -> None:
    """Events may have 1024 bytes, which are fewer letters in some languages."""
    recorder, api = _recorder()
    recorder.record(_event("ä" * 2000), 0.0)

    assert len(_written(recorder, api)[0].encode()) <= 1024


class Slow:
    """An API server that does not answer before the test allows it."""

    def __init__(self) -> None:
        self.asked, self.answering = threading.Event(), threading.Event()

    def send(self, _api_request: Request) -> bytes:
        """See `kube.api.Api`."""
        self.asked.set()
        self.answering.wait(LIMIT_S)
        return b"{}"

    def stream(self, api_request: Request) -> NoReturn:
        """Nobody watches here."""
        raise AssertionError(api_request.line)


def test_a_full_queue_does_not_hold_up_the_stop() -> None:
    """The process ends all the same; what waits is lost."""
    api = Slow()
    recorder = EventRecorder(api, "edl-test")
    recorder.start()
    recorder.record(_event(), 0.0)
    until(api.asked.is_set)
    for number in range(1000):
        recorder.record(_event(owner=f"j{number}", namespace=f"n{number % 2}"), 0.0)
    recorder.stop()
    still = [t for t in threading.enumerate() if t.name == "events"]
    api.answering.set()
    until(lambda: _ended(recorder, still))

    assert recorder.dropped == 0
    assert len(still) == 1


def _ended(recorder: EventRecorder, threads: list[threading.Thread]) -> bool:
    """Asks to stop once more, now that somebody answers."""
    recorder.stop()
    return not any(thread.is_alive() for thread in threads)


def test_a_recorder_that_never_began_stops_at_once() -> None:
    """Nothing is left behind."""
    before = set(threading.enumerate())
    recorder, _ = _recorder()
    recorder.stop()

    assert set(threading.enumerate()) == before
