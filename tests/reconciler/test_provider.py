"""What a job's master needs, made and made again; refusals are tried later and later."""

from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from kube import errors, request
from kube.request import SECRETS
from reconciler.provider import Provider
from tests.reconciler.server import Clock, Instant, of
from tests.reconciler.waiting import Writers
from tests.support.builders import job, servers

JOB = job("net", master=True)


@pytest.fixture
def pool() -> Iterator[Executor]:
    """Where calls run."""
    with Writers(2) as made:
        yield made


@pytest.fixture
def api() -> Instant:
    """An empty cluster."""
    return Instant(Clock())


def test_a_job_whose_objects_are_refused_is_tried_later_and_later(
    api: Instant, pool: Executor
) -> None:
    """Each pause is twice the one before, and a minute at most; each try is told of."""
    provider = Provider(api)
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 999, match=of("POST", "/roles"))
    tried_s = [second for second in range(190) if provider.ensure([JOB], float(second), pool)]

    assert tried_s == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert provider.of(JOB) is None


def test_success_ends_the_pauses(api: Instant, pool: Executor) -> None:
    """The next failure, minutes later, is a first one again."""
    provider = Provider(api)
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 3, match=of("POST", "/roles"))
    for second in range(8):
        provider.ensure([JOB], float(second), pool)
    api.fake.faults.fail_next(no, 999, match=of("POST", "/roles"))
    tried_s = [s for s in range(300, 312) if provider.ensure([JOB], float(s), pool)]

    assert provider.of(JOB) is not None
    assert tried_s == [307, 308, 310]


def test_what_is_there_is_looked_at_every_five_minutes(api: Instant, pool: Executor) -> None:
    """Not in every round."""
    provider = Provider(api)
    provider.ensure([JOB], 0.0, pool)
    before = len(api.writes)
    provider.ensure([JOB], 299.0, pool)
    early = len(api.writes) - before
    provider.ensure([JOB], 300.0, pool)

    assert early == 0
    assert len(api.writes) > before


def test_a_token_lives_as_long_as_its_job(api: Instant, pool: Executor) -> None:
    """A Secret that was deleted comes back with the same; a forgotten job gets another."""
    provider = Provider(api)
    provider.ensure([JOB], 0.0, pool)
    first = provider.of(JOB)
    api.ask(request.delete(SECRETS, "ml", "net-master"))
    provider.ensure([JOB], 300.0, pool)
    again = provider.of(JOB)
    provider.forget(JOB.uid)
    api.ask(request.delete(SECRETS, "ml", "net-master"))
    forgotten = provider.of(JOB)
    provider.ensure([JOB], 301.0, pool)
    other = provider.of(JOB)

    assert first == again
    assert forgotten is None
    assert first is not None
    assert other is not None
    assert other.token != first.token


def test_each_server_has_an_address_in_order(api: Instant, pool: Executor) -> None:
    """Whether or not its pod exists; a job without servers has none."""
    provider = Provider(api)
    with_servers = job("big", master=True, servers=servers(3))
    provider.ensure([JOB, with_servers], 0.0, pool)
    plain, big = provider.of(JOB), provider.of(with_servers)

    assert plain is not None
    assert big is not None
    assert plain.servers == ()
    assert len(set(big.servers)) == 3
    assert all(address.endswith(":8791") for address in big.servers)
