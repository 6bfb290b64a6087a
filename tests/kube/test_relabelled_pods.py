"""Labels of running pods are anybody's to change who may edit pods: EDL decides as before."""

from dataclasses import replace
from typing import Any

import pytest

from kube import decode
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Pod, Snapshot
from policy.document.model import Policy
from policy.document.queue_model import Quota
from policy.names import LABEL_JOB, LABEL_MASTER, LABEL_ROLE, LABEL_TIER, Tier
from policy.planning.quotas import Quotas
from policy.planning.victims import Candidate, Shares, choose
from policy.priority_classes import CLASS_OF, EDL_CLASSES
from reconciler.manifests import trainer as trainer_manifests
from tests.kube.items import plain_pod
from tests.support.builders import job, node, service

NODES = ("n0", "n1", "n2", "n3")
RELABELLINGS: dict[str, dict[str, str | None]] = {
    "nothing": {},
    "guaranteed": {LABEL_TIER: "guaranteed"},
    "no role": {LABEL_ROLE: None},
    "pserver": {LABEL_ROLE: "pserver"},
    "support": {LABEL_ROLE: "master", LABEL_TIER: "support"},
    "master": {LABEL_MASTER: "true"},
    "other job": {LABEL_JOB: "small"},
    "no label": dict.fromkeys((LABEL_JOB, LABEL_ROLE, LABEL_TIER, "edl.training/trainer-id")),
}


def trainer(owner: Job, number: int, changes: dict[str, str | None]) -> Pod:
    """A running trainer as the reconciler creates it, but for changes of its labels."""
    tier = Tier.GUARANTEED if number < 4 else Tier.SURPLUS
    body: dict[str, Any] = trainer_manifests.pod(owner, number, tier, "", 10)
    values = EDL_CLASSES[CLASS_OF[tier]]
    labels = {**body["metadata"]["labels"], **changes}
    body["metadata"]["labels"] = {name: value for name, value in labels.items() if value}
    body["metadata"]["uid"] = body["metadata"]["name"]
    body["spec"] |= {"priority": values.value, "nodeName": NODES[number % 4]}
    body["status"] = {"phase": "Running", "startTime": "2026-11-20T10:11:12Z"}
    return replace(decode.pod(body), requests=owner.requests)


def cluster(changes: dict[str, str | None]) -> ClusterState:
    """Two jobs with 4 guaranteed and 4 surplus trainers each; the surplus of one is relabelled."""
    template_json = b'{"spec": {"containers": [{"name": "main", "image": "x"}]}}'
    jobs = [job(name, 4, 8, template_json=template_json) for name in ("cheat", "honest", "small")]
    pods = [
        trainer(owner, number, changes if owner.name == "cheat" and number >= 4 else {})
        for owner in jobs[:2]
        for number in range(8)
    ]
    return ClusterState.of(
        Snapshot(tuple(node(name, 20) for name in NODES), tuple(pods), tuple(jobs))
    )


@pytest.mark.parametrize("changes", RELABELLINGS.values(), ids=RELABELLINGS)
def test_relabelled_trainers_still_use_up_their_quota(changes: dict[str, str | None]) -> None:
    """16 trainers of 5 CPU leave nothing of 80 CPU for their namespace."""
    state = cluster(changes)
    policy = Policy(quotas=(Quota(namespace="ml", requests={"cpu": "80"}),))
    cheat = state.jobs["ml/cheat"]

    assert len(state.trainers(cheat)) == 8
    assert state.live_trainers(cheat).surplus == 4
    assert not Quotas(policy, state).allow(cheat)


@pytest.mark.parametrize("changes", RELABELLINGS.values(), ids=RELABELLINGS)
def test_relabelled_trainers_have_the_share_of_their_job(changes: dict[str, str | None]) -> None:
    """Each of the 16 has the same share."""
    state = cluster(changes)
    shares = Shares(state, {})

    assert len({shares.of(pod) for pod in state.pods.values()}) == 1


@pytest.mark.parametrize("changes", RELABELLINGS.values(), ids=RELABELLINGS)
def test_relabelled_trainers_stay_victims(changes: dict[str, str | None]) -> None:
    """A service ends the surplus trainer that it ends without relabelling, on every node."""
    state = cluster(changes)
    web = service("web", 5)

    for name in NODES:
        proposed = Candidate(name, tuple(uid for uid in state.bound[name] if uid[-1] in "4567"))
        chosen = choose(web, [proposed], state)
        unchanged = choose(web, [proposed], cluster({}))

        assert chosen == unchanged
        assert chosen is not None
        assert len(chosen.uids) == 1


def test_many_masters_do_not_protect_the_surplus_of_a_job() -> None:
    """Only the pod with the sidecar, which cannot be added later, hosts the master."""
    state = cluster({LABEL_MASTER: "true"})

    assert not any(pod.master for pod in state.pods.values())


@pytest.mark.parametrize(
    ("name", "trainer_id", "server"),
    [
        ("net-trainer-7", 7, -1),
        ("net-trainer-", -1, -1),
        ("net-trainer-1.5", -1, -1),
        ("net-trainer-٣", -1, -1),
        ("net-trainer-" + "9" * 30, -1, -1),
        ("net-ps-63", -1, 63),
        ("net-ps-x", -1, -1),
    ],
)
def test_the_number_of_a_trainer_or_server_is_that_of_its_name(
    name: str, trainer_id: int, server: int
) -> None:
    """Of a pod that a batch/v1 Job controls; labels are anybody's to write."""
    obj = plain_pod()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "net", "uid": "j", "controller": True}
    obj["metadata"] |= {
        "name": name,
        "labels": {"edl.training/trainer-id": "5", "edl.training/parameter-server": "5"},
        "ownerReferences": [{**owner, "uid": "k", "controller": False}, owner],
    }
    pod = decode.pod(obj)
    foreign = decode.pod(
        {
            **obj,
            "metadata": {
                **obj["metadata"],
                "ownerReferences": [{**owner, "apiVersion": "batch.volcano.sh/v1alpha1"}],
            },
        }
    )

    assert (pod.trainer_id, pod.server, pod.owner_uid) == (trainer_id, server, "j")
    assert (foreign.trainer_id, foreign.server, foreign.role) == (-1, -1, None)
