"""Encoded API objects are decoded to the original records."""

from dataclasses import replace

from bench import objects
from bench.clusters import cluster
from kube import decode


def test_records_survive_the_round_trip() -> None:
    """The extender decides on the cluster that the plan is measured on."""
    snapshot = cluster(60)
    assert [decode.node(objects.node(node)) for node in snapshot.nodes] == list(snapshot.nodes)
    assert [decode.pod(objects.pod(pod)) for pod in snapshot.pods] == list(snapshot.pods)
    jobs = [decode.job(objects.job(job) | {}) for job in snapshot.jobs]
    assert [job and replace(job, template_json=b"{}", resource_version="") for job in jobs] == [
        replace(job, resource_version="") for job in snapshot.jobs
    ]


def test_a_nomination_survives_too() -> None:
    """Promised room is part of what filter looks at."""
    pod = replace(cluster(20).pods[0], nominated="node-00003")
    assert decode.pod(objects.pod(pod)).nominated == "node-00003"
