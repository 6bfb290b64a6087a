"""What a job's master needs, made and made again; refusals are tried later and later."""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace

import pytest

from kube import errors, request
from kube.request import CONFIGMAPS, SECRETS
from reconciler.manifests import master as master_manifests
from reconciler.masters.job_objects import JobObjects
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
    job_objects = JobObjects(api, "edl-system")
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 999, match=of("POST", "/roles"))
    tried_s = [second for second in range(190) if job_objects.ensure([JOB], float(second), pool)]

    assert tried_s == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert job_objects.endpoints(JOB) is None


def test_success_ends_the_pauses(api: Instant, pool: Executor) -> None:
    """The next failure, minutes later, is a first one again."""
    job_objects = JobObjects(api, "edl-system")
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
    job_objects = JobObjects(api, "edl-system")
    job_objects.ensure([JOB], 0.0, pool)
    before = len(api.writes)
    job_objects.ensure([JOB], 299.0, pool)
    early = len(api.writes) - before
    job_objects.ensure([JOB], 300.0, pool)

    assert early == 0
    assert len(api.writes) > before


def _token(api: Instant, name: str) -> str:
    return str(api.ask(request.get(SECRETS, "ml", name))["data"]["token"])


def test_a_token_lives_as_long_as_its_job(api: Instant, pool: Executor) -> None:
    """A Secret that was deleted comes back with the same, whichever process creates it."""
    for start_s in (0.0, 400.0):
        job_objects = JobObjects(api, "edl-system")
        job_objects.ensure([JOB], start_s, pool)
        before = _token(api, "net-edl-master")
        api.ask(request.delete(SECRETS, "ml", "net-edl-master"))
        job_objects.ensure([JOB], start_s + 300.0, pool)

        assert _token(api, "net-edl-master") == before


def test_another_generation_is_another_token_at_once(api: Instant, pool: Executor) -> None:
    """In a Secret of its own: pods of the one before keep theirs until they are replaced."""
    job_objects = JobObjects(api, "edl-system")
    job_objects.ensure([JOB], 0.0, pool)
    first = job_objects.endpoints(JOB)
    job_objects.ensure([replace(JOB, token_generation=2)], 1.0, pool)
    second = job_objects.endpoints(JOB)

    assert first is not None
    assert second is not None
    assert (first.secret, second.secret) == ("net-edl-master", "net-edl-master-2")
    assert first.token != second.token
    assert _token(api, first.secret) != _token(api, second.secret)


def test_an_earlier_jobs_secret_is_not_used(api: Instant, pool: Executor) -> None:
    """It is about to be collected: a Job that is recreated would have trainers of two tokens."""
    young = replace(JOB, created_s=100.0)
    leftover = {"metadata": {"name": "net-edl-master"}, "data": {"token": "b2xk"}}
    api.ask(request.create(SECRETS, "ml", leftover))
    job_objects = JobObjects(api, "edl-system")
    (event,) = job_objects.ensure([young], 100.0, pool)
    refused = job_objects.endpoints(young)
    api.ask(request.delete(SECRETS, "ml", "net-edl-master"))
    job_objects.ensure([young], 101.0, pool)

    assert refused is None
    assert event.message.startswith("Secret net-edl-master exists already")
    assert job_objects.endpoints(young) is not None
    assert _token(api, "net-edl-master") != "b2xk"


def test_a_secret_that_stays_is_used_as_it_is(api: Instant, pool: Executor) -> None:
    """A leader that was killed before it created the ConfigMap wrote it, or its user did."""
    secret = {"metadata": {"name": "net-edl-master"}, "data": {"token": "b2xk"}}
    api.ask(request.create(SECRETS, "ml", secret))
    job_objects = JobObjects(api, "edl-system")
    job_objects.ensure([replace(JOB, created_s=100.0)], 160.0, pool)

    assert job_objects.endpoints(JOB) is not None
    assert _token(api, "net-edl-master") == "b2xk"


def test_a_refusal_after_the_secret_is_no_foreign_secret(api: Instant, pool: Executor) -> None:
    """The next try knows that this process has just created it."""
    young = replace(JOB, created_s=100.0)
    job_objects = JobObjects(api, "edl-system")
    no = errors.Forbidden("no", status=403)
    api.fake.faults.fail_next(no, 1, match=of("POST", "/configmaps"))
    job_objects.ensure([young], 100.0, pool)
    job_objects.ensure([young], 101.0, pool)

    assert job_objects.endpoints(young) is not None


def test_a_job_of_the_names_before_keeps_its_objects(api: Instant, pool: Executor) -> None:
    """Its master's snapshots are in them, and its pods have the token of that Secret."""
    for kind in (CONFIGMAPS, SECRETS):
        body = {**master_manifests.config_map(JOB, "net-master"), "data": {"token": "b2xk"}}
        api.ask(request.create(kind, "ml", body))
    job_objects = JobObjects(api, "edl-system")
    for now_s in (0.0, 300.0):
        job_objects.ensure([JOB], now_s, pool)
    endpoints = job_objects.endpoints(JOB)

    assert endpoints is not None
    assert (endpoints.name, endpoints.secret) == ("net-master", "net-master")
    assert _token(api, "net-master") == "b2xk"
    assert api.all(request.SERVICES)[0]["metadata"]["name"] == "net-master"


def test_no_secret_of_a_job_is_ever_read(api: Instant, pool: Executor) -> None:
    """Only the installation's key, in EDL's own namespace."""
    asked: list[str] = []

    class Watched:
        """Records what is read."""

        def send(self, api_request: request.Request) -> bytes:
            """See `kube.api.Api`."""
            asked.append(api_request.line)
            return api.send(api_request)

        stream = api.stream

    for _ in range(2):
        JobObjects(Watched(), "edl-system").ensure([JOB], 0.0, pool)

    reads = {line for line in asked if line.startswith("GET") and "/secrets/" in line}
    assert reads == {"GET /api/v1/namespaces/edl-system/secrets/edl-job-tokens"}
    assert "POST /api/v1/namespaces/ml/secrets" in asked


def test_a_job_gets_a_network_policy_where_the_policy_says_so(api: Instant, pool: Executor) -> None:
    """Within five minutes of the change; before, its ports are open to every pod."""
    isolates = [False]
    job_objects = JobObjects(api, "edl-system", lambda: isolates[0])
    job_objects.ensure([JOB], 0.0, pool)
    before = api.all(request.NETWORKPOLICIES)
    isolates[0] = True
    job_objects.ensure([JOB], 300.0, pool)
    (after,) = api.all(request.NETWORKPOLICIES)

    assert before == []
    assert after["metadata"]["ownerReferences"][0]["uid"] == JOB.uid


@pytest.mark.parametrize("key", [None, "", "?", "c2hvcnQ="])
def test_an_unusable_key_is_named(key: str | None, api: Instant, pool: Executor) -> None:
    """Tokens of a short key could be guessed; no job's objects are created meanwhile."""
    body = {"metadata": {"name": "edl-job-tokens"}, "data": {"key": key}}
    api.ask(request.create(SECRETS, "edl-system", body))
    job_objects = JobObjects(api, "edl-system")
    (event,) = job_objects.ensure([JOB], 0.0, pool)

    assert event.message == (
        "Secret edl-job-tokens in edl-system has no usable key: delete it, and EDL creates it again"
    )
    assert job_objects.endpoints(JOB) is None


def test_two_leaders_agree_on_the_key(api: Instant, pool: Executor) -> None:
    """The one that is slower reads what the other created."""
    missing = errors.NotFound("not yet", status=404)
    first, second = (JobObjects(api, "edl-system") for _ in range(2))
    first.ensure([JOB], 0.0, pool)
    api.fake.faults.fail_next(missing, 1, match=of("GET", "/secrets/edl-job-tokens"))
    second.ensure([JOB], 0.0, pool)

    assert first.endpoints(JOB) == second.endpoints(JOB) is not None


def test_each_server_has_an_address_in_order(api: Instant, pool: Executor) -> None:
    """Whether or not its pod exists; a job without servers has none."""
    job_objects = JobObjects(api, "edl-system")
    with_servers = job("big", master=True, servers=servers(3))
    job_objects.ensure([JOB, with_servers], 0.0, pool)
    plain, big = job_objects.endpoints(JOB), job_objects.endpoints(with_servers)

    assert plain is not None
    assert big is not None
    assert plain.servers == ()
    assert len(set(big.servers)) == 3
    assert all(address.endswith(":8791") for address in big.servers)


def test_a_tick_creates_objects_of_a_few_jobs_only(api: Instant, pool: Executor) -> None:
    """Of a tenant's hundred as of the one of another; the others come with the next ticks."""
    many = [replace(JOB, name=f"j{n}", uid=f"uid-{n}", token_generation=1) for n in range(100)]
    other = replace(JOB, namespace="other", uid="other")
    job_objects = JobObjects(api, "edl-system")

    ticks = 0
    job_objects.ensure([*many, other], 0.0, pool)
    first = [job for job in [*many, other] if job_objects.endpoints(job)]
    while job_objects.has_deferred_jobs and ticks < 20:
        ticks += 1
        job_objects.ensure([*many, other], 0.1 * ticks, pool)

    assert len(first) == 16
    assert other in first
    assert ticks == 6
    assert all(job_objects.endpoints(job) for job in many)


def test_tokens_are_not_renewed_faster_than_they_can_be_used(api: Instant, pool: Executor) -> None:
    """The second change waits for 10 s, the third for 20: whoever changes it each second gets few."""
    job_objects = JobObjects(api, "edl-system")
    job_objects.ensure([JOB], 0.0, pool)
    secrets = {
        job_objects.ensure([replace(JOB, token_generation=second)], float(second), pool)
        or getattr(job_objects.endpoints(JOB), "secret", "")
        for second in range(2, 62)
    }
    calm = replace(JOB, token_generation=1000)
    job_objects.ensure([calm], 200.0, pool)

    assert sorted(secrets) == [
        "net-edl-master-12",
        "net-edl-master-2",
        "net-edl-master-32",
    ]
    assert getattr(job_objects.endpoints(JOB), "secret", "") == "net-edl-master-1000"
