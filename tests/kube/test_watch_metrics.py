"""The metrics of watches."""

from kube import errors
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, Request
from kube.watch_metrics import add_watch_metrics
from lab.fake_api import FakeApi
from runtime.metrics import Metrics
from tests.kube.items import FaultyWatchApi, put, read


def _is_watch(sent: Request) -> bool:
    return "watch" in sent.target


def test_lists_messages_and_errors_of_watches_are_exported() -> None:
    """Errors add up over resources, by kind; before the first there is none."""
    fake = FakeApi()
    first, second = (Reflector(FaultyWatchApi(fake), CONFIGMAPS, read) for _ in range(2))
    metrics = Metrics("extender")
    add_watch_metrics(metrics, {"pods": first, "nodes": second})
    assert b"edl_extender_watch_errors_total{" not in metrics.text()

    put(fake, "a", "1")
    for reflector in (first, second):
        fake.faults.fail_next(errors.Forbidden("no", status=403), match=_is_watch)
        reflector.follow_once()
    first.follow_once()
    scrape = metrics.text().decode()

    assert 'edl_extender_watch_lists_total{resource="pods"} 2.0' in scrape
    assert 'edl_extender_watch_lists_total{resource="nodes"} 1.0' in scrape
    assert f'edl_extender_watch_events_total{{resource="pods"}} {first.counts.events}.0' in scrape
    assert 'edl_extender_watch_errors_total{kind="Forbidden"} 2.0' in scrape
