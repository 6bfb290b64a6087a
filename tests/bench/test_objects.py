"""What the synthetic API server sends is read back as the records it was made from."""

from dataclasses import replace

from bench import objects
from bench.clusters import cluster
from kube import decode


def test_records_survive_the_round_trip() -> None:
    """The extender decides on the cluster that the plan is measured on."""
    made = cluster(60)
    assert [decode.node(objects.node(node)) for node in made.nodes] == list(made.nodes)
    assert [decode.pod(objects.pod(pod)) for pod in made.pods] == list(made.pods)
    jobs = [decode.job(objects.job(job) | {}) for job in made.jobs]
    assert [job and replace(job, template={}, resource_version="") for job in jobs] == [
        replace(job, resource_version="") for job in made.jobs
    ]


def test_a_nomination_survives_too() -> None:
    """Promised room is part of what filter looks at."""
    pod = replace(cluster(20).pods[0], nominated="node-00003")
    assert decode.pod(objects.pod(pod)).nominated == "node-00003"
