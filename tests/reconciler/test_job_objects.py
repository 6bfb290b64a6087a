"""What a job's master needs, made and made again; refusals are tried later and later."""

from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from kube import errors, request
from kube.request import SECRETS
from reconciler.job_objects import JobObjects
from tests.reconciler.server import Clock, Instant, of
from tests.reconciler.waiting import Writers
from tests.support.builders import job, servers

JOB = job("net", master=True)


@pytest.fixture
def pool() -> Iterator[Executor]:
    """Where calls run."""
    with Writers(2) as writers:
        yield writers


@pytest.fixture
def api() -> Instant:
    """An empty cluster."""
    return Instant(Clock())


def test_a_job_whose_objects_are_refused_is_tried_later_and_later(
    api: Instant, pool: Executor
) -> None:
    """Each back-off is twice the one before, and a minute at most; each try gets an event."""
    job_objects = JobObjects(api)
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 999, match=of("POST", "/roles"))
    tried_s = [second for second in range(190) if job_objects.ensure([JOB], float(second), pool)]

    assert tried_s == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert job_objects.endpoints(JOB) is None


def test_success_ends_the_pauses(api: Instant, pool: Executor) -> None:
    """The next failure, minutes later, is a first one again."""
    job_objects = JobObjects(api)
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 3, match=of("POST", "/roles"))
    for second in range(8):
        job_objects.ensure([JOB], float(second), pool)
    api.fake.faults.fail_next(no, 999, match=of("POST", "/roles"))
    tried_s = [s for s in range(300, 312) if job_objects.ensure([JOB], float(s), pool)]

    assert job_objects.endpoints(JOB) is not None
    assert tried_s == [307, 308, 310]


def test_what_is_there_is_looked_at_every_five_minutes(api: Instant, pool: Executor) -> None:
    """Not in every tick."""
    job_objects = JobObjects(api)
    job_objects.ensure([JOB], 0.0, pool)
    before = len(api.writes)
    job_objects.ensure([JOB], 299.0, pool)
    early = len(api.writes) - before
    job_objects.ensure([JOB], 300.0, pool)

    assert early == 0
    assert len(api.writes) > before


def test_a_token_lives_as_long_as_its_job(api: Instant, pool: Executor) -> None:
    """A Secret that was deleted comes back with the same; a forgotten job gets another."""
    job_objects = JobObjects(api)
    job_objects.ensure([JOB], 0.0, pool)
    first = job_objects.endpoints(JOB)
    api.ask(request.delete(SECRETS, "ml", "net-master"))
    job_objects.ensure([JOB], 300.0, pool)
    again = job_objects.endpoints(JOB)
    job_objects.forget(JOB)
    api.ask(request.delete(SECRETS, "ml", "net-master"))
    forgotten = job_objects.endpoints(JOB)
    job_objects.ensure([JOB], 301.0, pool)
    other = job_objects.endpoints(JOB)

    assert first == again
    assert forgotten is None
    assert first is not None
    assert other is not None
    assert other.token != first.token


def test_each_server_has_an_address_in_order(api: Instant, pool: Executor) -> None:
    """Whether or not its pod exists; a job without servers has none."""
    job_objects = JobObjects(api)
    with_servers = job("big", master=True, servers=servers(3))
    job_objects.ensure([JOB, with_servers], 0.0, pool)
    plain, big = job_objects.endpoints(JOB), job_objects.endpoints(with_servers)

    assert plain is not None
    assert big is not None
    assert plain.servers == ()
    assert len(set(big.servers)) == 3
    assert all(address.endswith(":8791") for address in big.servers)
