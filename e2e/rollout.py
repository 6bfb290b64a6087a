"""Bursts of services in a cluster where EDL's servers are pods, and admission while these are replaced.

The load is on nodes that kwok plays, beside the real ones of EDL.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from e2e.environment import SLOTS, IsolatedNamespace
from e2e.faults import live_ids
from e2e.in_cluster import SLEEP, elastic_job, is_refused
from e2e.waiting import until
from kube import request
from kube.request import JOBS

SERVICES = 40
IN_TIME_S = 60.0
_BACK_S = 90.0
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs that fill a cluster together.

    Attributes:
        jobs: Their names; there are no others.
        trainers: How many run at least where no service does.
    """

    jobs: tuple[str, ...] = ("one", "two")
    trainers: int = SLOTS


@dataclass(frozen=True, slots=True)
class Update:
    """The effect of an update of the servers on bursts and on admission.

    Attributes:
        bursts_s: Seconds until the services of each burst ran.
        refused: Wrong Jobs that were refused meanwhile.
        accepted: Wrong Jobs that were not: nobody reviewed them.
    """

    bursts_s: tuple[float, ...]
    refused: int
    accepted: int


TWO_JOBS = Load()


def burst(
    namespace: IsolatedNamespace,
    load: Load = TWO_JOBS,
    meanwhile: Callable[[], object] = lambda: None,
) -> float:
    """Seconds until the services of a burst run; afterwards the jobs have the room again.

    Args:
        namespace: Where.
        load: What fills the cluster.
        meanwhile: Called once the services are wanted; the time counts from its end.
    """
    namespace.services(SERVICES)
    meanwhile()
    took_s = namespace.wait_services(SERVICES, IN_TIME_S)
    ids = live_ids(namespace)
    assert len(ids) == len(set(ids))
    namespace.services(0)
    wait_full(namespace, load)
    return took_s


def wait_full(namespace: IsolatedNamespace, load: Load) -> None:
    """Waits until the trainers of all jobs fill the cluster."""
    until(
        "the jobs fill the cluster",
        lambda: sum(namespace.running(job) for job in load.jobs),
        lambda count: count >= load.trainers,
        _BACK_S,
    )


def bursts_during(
    namespace: IsolatedNamespace,
    replace_servers: Callable[[], None],
    load: Load = TWO_JOBS,
) -> Update:
    """Replaces servers, with one burst after another meanwhile, and wrong Jobs all the time.

    Args:
        namespace: Where jobs fill the cluster.
        replace_servers: Returns when all new servers are ready.
        load: As for `burst`.
    """
    with ThreadPoolExecutor(2) as pool:
        updating = pool.submit(replace_servers)
        reviews = pool.submit(_admissions, namespace, updating)
        bursts_s = [burst(namespace, load)]
        while not updating.done():
            bursts_s.append(burst(namespace, load))
        updating.result()
        accepted, refused = reviews.result()
    return Update(tuple(bursts_s), refused, accepted)


def _admissions(namespace: IsolatedNamespace, updating: Future[None]) -> tuple[int, int]:
    """(accepted, refused) of wrong Jobs until the update is done."""
    wrong = dict(elastic_job("wrong", 4, 2, "100m", SLEEP))
    create = replace(request.create(JOBS, namespace.name, wrong), query=(("dryRun", "All"),))
    results = []
    while not updating.done():
        results.append(is_refused(namespace.environment, create))
        time.sleep(_PAUSE_S)
    return results.count(False), results.count(True)
