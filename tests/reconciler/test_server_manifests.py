from dataclasses import replace
from typing import Any

import jsonpatch
import orjson
import pytest

from kube import decode
from policy.admission.mutation import pod_patch
from policy.cluster.snapshot import Job, ServerSpec
from policy.document.model import Policy
from policy.names import TRAINER_RESOURCE, NodeRequest, Role, Tier
from policy.priority_classes import EDL_CLASSES
from policy.scheduling import Scheduling
from pserver.settings import PserverSettings
from reconciler.manifests import server as server_manifests
from tests.support.builders import job, servers, shape

_ASKED = servers(4, 0.5, 1)
_SECRET = "net-edl-master"  # noqa: S105 - a name


def _pod(server_spec: ServerSpec = _ASKED, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    owner = replace(
        job("net", servers=server_spec),
        account="data",
        template_json=orjson.dumps({"spec": spec or {}}),
    )
    marked = Scheduling(marked=True)
    return server_manifests.pod(owner, server_spec, 3, "n0", 10, secret=_SECRET, scheduling=marked)


def _container(server_spec: ServerSpec = _ASKED) -> dict[str, Any]:
    container: dict[str, Any] = _pod(server_spec)["spec"]["containers"][0]
    return container


def test_a_server_is_read_back_as_what_it_is() -> None:
    """Role, tier, index, job, owner and what the plan left room for all arrive."""
    manifest = _pod()
    manifest["metadata"]["uid"] = "u"
    decoded = decode.pod(manifest)

    assert (decoded.name, decoded.server, decoded.trainer_id) == ("net-ps-3", 3, -1)
    assert (decoded.role, decoded.tier) == (Role.PSERVER, Tier.SUPPORT)
    assert (decoded.job, decoded.owner_uid, decoded.planned) == ("net", "uid-net", "n0")
    assert decoded.requests == shape(0.5, 1)


def test_a_server_may_wait_for_a_new_node() -> None:
    """Without a planned node, and without the extender's resource, which no new node has."""
    owner = replace(job("net", servers=_ASKED), template_json=b"{}")
    manifest = server_manifests.pod(owner, _ASKED, 3, "", 10, secret=_SECRET)
    decoded = decode.pod(manifest | {"metadata": {**manifest["metadata"], "uid": "u"}})

    assert (decoded.node_request, decoded.planned) == (NodeRequest.START, "")
    assert TRAINER_RESOURCE not in manifest["spec"]["containers"][0]["resources"]["limits"]


def test_admission_adds_the_image_alone() -> None:
    """The rest is what the webhook would give it."""
    manifest = _pod()
    values = EDL_CLASSES[manifest["spec"]["priorityClassName"]]
    filled = {"priority": values.value, "preemptionPolicy": values.preemption_policy}
    manifest["spec"] |= filled  # as the Priority plugin does
    operations = list(pod_patch(manifest, "ml", Policy(), EDL_CLASSES, "edl:1").operations)

    assert [operation["path"] for operation in operations] == ["/spec/containers/0/image"]
    assert (
        jsonpatch.JsonPatch(operations).apply(manifest)["spec"]["containers"][0]["image"] == "edl:1"
    )


def test_the_command_is_one_that_a_server_takes() -> None:
    """Read by the server's own settings."""
    command = _container()["command"]
    settings = PserverSettings.from_command_line("", command[3:], {})

    assert command[:3] == ["python", "-m", "pserver"]
    assert (settings.index, settings.of, settings.job) == (3, 4, "net")
    assert (settings.listen, str(settings.checkpoints)) == (":8791", "/var/lib/edl-pserver")


def test_the_token_comes_from_the_jobs_secret() -> None:
    """In a file: somebody who may read pods but not Secrets cannot read it, nor its environment."""
    variables = {entry["name"]: entry["value"] for entry in _container()["env"]}
    (volume,) = [v for v in _pod()["spec"]["volumes"] if v["name"] == "edl-token"]
    (mount,) = [m for m in _container()["volumeMounts"] if m["name"] == "edl-token"]

    assert variables == {"EDL_JOB": "net", "EDL_TOKEN_FILE": f"{mount['mountPath']}/token"}
    assert volume["secret"]["secretName"] == "net-edl-master"
    assert mount["readOnly"] is True
    assert not [word for word in _container()["command"] if "token" in word.lower()]


def test_it_is_probed_and_locked_in() -> None:
    """All probes at one place; no rights, no root, no writes but to its volume."""
    container = _container()
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]

    assert probes == [{"path": "/healthz", "port": 8791}] * 3
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert _pod()["spec"]["automountServiceAccountToken"] is False
    assert _pod()["spec"]["restartPolicy"] == "Always"


def test_a_large_checkpoint_may_take_ten_minutes_to_read() -> None:
    """Until it is read nothing kills the server; afterwards it is probed every few seconds."""
    container = _container()
    startup, ready, alive = (
        container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")
    )

    assert (startup["periodSeconds"], startup["failureThreshold"]) == (1, 600)
    assert (ready["periodSeconds"], ready["timeoutSeconds"]) == (2, 3)
    assert (alive["periodSeconds"], alive["timeoutSeconds"]) == (10, 5)


def test_it_goes_with_its_job_and_sees_no_other_services() -> None:
    """Variables of Services named like ours would be taken for settings."""
    manifest = _pod()
    (owner,) = manifest["metadata"]["ownerReferences"]

    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)
    assert manifest["spec"]["enableServiceLinks"] is False
    assert manifest["spec"]["terminationGracePeriodSeconds"] == 10


@pytest.mark.parametrize(("limits", "expected"), [({"cpu": "8"}, "500m"), ({}, None)])
def test_a_server_has_a_cpu_limit_where_the_trainers_have_one(
    limits: dict[str, str], expected: str | None
) -> None:
    """A ResourceQuota on limits.cpu, which asks them for it, asks the servers too."""
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    resources = _pod(spec=spec)["spec"]["containers"][0]["resources"]

    assert resources["limits"].get("cpu") == expected


def test_memory_is_a_promise_and_a_limit() -> None:
    """A server refuses what would go over it; CPU is shared."""
    resources = _container()["resources"]

    assert resources["requests"] == {"cpu": "500m", "memory": "1Gi", "edl.training/trainer": "1"}
    assert resources["limits"] == {"memory": "1Gi", "edl.training/trainer": "1"}


@pytest.mark.parametrize(
    ("claim", "source"),
    [
        ("", {"emptyDir": {"sizeLimit": "4Gi"}}),
        ("nets", {"persistentVolumeClaim": {"claimName": "nets"}}),
    ],
)
def test_checkpoints_outlive_the_container(claim: str, source: dict[str, Any]) -> None:
    """In a bounded volume of the pod, or in the claim that the Job names."""
    pod_spec = _pod(servers(4, 0.5, 1, claim))["spec"]
    volume, _ = pod_spec["volumes"]
    mount, _ = pod_spec["containers"][0]["volumeMounts"]

    assert {key: value for key, value in volume.items() if key != "name"} == source
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/var/lib/edl-pserver")
    assert (
        pod_spec["securityContext"]["fsGroup"]
        == pod_spec["containers"][0]["securityContext"]["runAsUser"]
    )


def test_servers_run_where_trainers_may() -> None:
    """Selector, node affinity, tolerations and rights to pull; what is about other pods is not theirs."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
    }
    template = {
        "nodeSelector": {"pool": "training"},
        "tolerations": [{"key": "training", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {"nodeAffinity": node_affinity, "podAntiAffinity": {"x": "y"}},
        "hostNetwork": True,
    }
    pod_spec = _pod(spec=template)["spec"]

    assert pod_spec["affinity"] == {"nodeAffinity": node_affinity}
    assert "hostNetwork" not in pod_spec
    for name in ("nodeSelector", "tolerations", "imagePullSecrets"):
        assert pod_spec[name] == template[name]
    assert pod_spec["serviceAccountName"] == "data"


def test_a_template_without_a_spec_is_no_crash() -> None:
    """Whatever the record holds."""
    owner: Job = replace(job("net", servers=_ASKED), template_json=b"{}")

    assert server_manifests.pod(owner, _ASKED, 0, "n0", 10, secret=_SECRET)["spec"]["containers"]
