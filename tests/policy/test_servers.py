from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import quantity
from policy.admission import job_settings
from policy.admission.mutation import NO_IMAGE, pod_patch
from policy.cluster.snapshot import ServerSpec
from policy.document.model import Policy
from policy.errors import JobError
from policy.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_MASTER,
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    LABEL_JOB,
    LABEL_SERVER,
    server_name,
)
from policy.priority_classes import EDL_CLASSES
from tests.support.builders import GI

_LABELS = {LABEL_JOB: "net", LABEL_SERVER: "0", "edl.training/role": "pserver"}


def _requested(**changes: str | None) -> ServerSpec | None:
    """What two servers of a job with a master are, with annotations set (None removes)."""
    annotations = {ANNOTATION_MASTER: "true", ANNOTATION_SERVERS: "2"}
    for name, value in changes.items():
        key = f"edl.training/{name.replace('_', '-')}"
        if value is None:
            annotations.pop(key)
        else:
            annotations[key] = value
    return job_settings.servers(annotations)


def test_a_job_that_says_nothing_has_none() -> None:
    """Nor does one with a master alone."""
    assert job_settings.servers({}) is None
    assert _requested(parameter_servers=None) is None


def test_a_number_is_enough() -> None:
    """Half a CPU and a GiB for each, and checkpoints beside it."""
    assert _requested() == ServerSpec(2, {"cpu": 500, "memory": GI, "pods": 1})


def test_all_of_it_can_be_said() -> None:
    """Amounts as Kubernetes writes them; the claim by its name."""
    spec = _requested(
        parameter_servers="64",
        parameter_server_cpu="2",
        parameter_server_memory="8Gi",
        checkpoint_claim="nets.shared",
    )

    assert spec == ServerSpec(64, {"cpu": 2000, "memory": 8 * GI, "pods": 1}, "nets.shared")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"parameter_servers": "0"},
            f"{ANNOTATION_SERVERS} is 0: write a whole number from 1 to 64",
        ),
        ({"parameter_servers": "65"}, f"{ANNOTATION_SERVERS} is 65: write a whole number from 1"),
        ({"parameter_servers": "two"}, f"{ANNOTATION_SERVERS} is 'two'"),
        ({"master": None}, f"{ANNOTATION_SERVERS} needs a master: write {ANNOTATION_MASTER}"),
        ({"master": "false"}, f"{ANNOTATION_SERVERS} needs a master"),
        ({"parameter_server_cpu": "much"}, f"{ANNOTATION_SERVER_CPU}: cpu: 'much' is not a"),
        (
            {"parameter_server_cpu": "0"},
            f"{ANNOTATION_SERVER_CPU} is '0': a parameter server needs",
        ),
        ({"parameter_server_memory": "512m"}, f"{ANNOTATION_SERVER_MEMORY} is '512m': .* 128Mi"),
        ({"parameter_server_memory": "-1Gi"}, f"{ANNOTATION_SERVER_MEMORY} is '-1Gi'"),
        (
            {"checkpoint_claim": "My Claim"},
            f"{ANNOTATION_CLAIM} is 'My Claim': write the name of a",
        ),
        ({"checkpoint_claim": ""}, f"{ANNOTATION_CLAIM} is ''"),
        ({"checkpoint_claim": "a" * 254}, f"{ANNOTATION_CLAIM} is 'aaa"),
    ],
)
def test_invalid_requests_are_rejected_by_name(
    changes: dict[str, str | None], message: str
) -> None:
    """The annotation, and what would be right."""
    with pytest.raises(JobError, match=message):
        _requested(**changes)


@pytest.mark.parametrize("name", ["parameter_server_cpu", "parameter_server_memory"])
def test_details_of_servers_that_nobody_asked_for_are_a_slip(name: str) -> None:
    """Their number is missing, not meant to be none."""
    with pytest.raises(JobError, match="the Job requests none"):
        _requested(parameter_servers=None, **{name: "1Gi"})


@given(st.text(max_size=12), st.sampled_from(job_settings.SERVER_ANNOTATIONS))
def test_odd_text_is_refused_or_understood(text: str, name: str) -> None:
    """Never a crash, and never a server that asks for nothing."""
    annotations = {ANNOTATION_MASTER: "true", ANNOTATION_SERVERS: "2", name: text}
    try:
        spec = job_settings.servers(annotations)
    except JobError as error:
        assert str(error).startswith(name)  # noqa: PT017 - a refusal is one of two right answers
    else:
        assert spec is not None
        assert spec.requests["memory"] >= quantity.parse("memory", job_settings.MIN_SERVER_MEMORY)


def test_pods_and_services_share_a_name() -> None:
    """The same for an index for ever; long names of jobs stay apart."""
    assert server_name("net", 0) == "net-ps-0"
    assert len(server_name("a" * 63, 63)) <= 63
    assert server_name("a" * 62 + "b", 1) != server_name("a" * 62 + "c", 1)


def _changed(containers: Any, image: str = "edl:1") -> tuple[dict[str, Any], tuple[str, ...]]:
    pod = {"metadata": {"labels": dict(_LABELS)}, "spec": {"containers": containers}}
    change = pod_patch(pod, "ml", Policy(), EDL_CLASSES, image)
    changed: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
    return changed, change.warnings


def test_admission_says_what_a_server_runs() -> None:
    """The image that it gives to masters; the user's containers beside it keep theirs."""
    changed, warnings = _changed([{"name": "edl-pserver"}, {"name": "own", "image": "x"}])

    assert [c["image"] for c in changed["spec"]["containers"]] == ["edl:1", "x"]
    assert changed["metadata"]["labels"]["edl.training/tier"] == "support"
    assert warnings == ()


def test_an_image_that_is_named_is_kept() -> None:
    """So is the pod when it is looked at again."""
    changed, _ = _changed([{"name": "edl-pserver", "image": "own"}])

    assert changed["spec"]["containers"][0]["image"] == "own"


def test_without_an_image_there_is_a_warning() -> None:
    """And the API server, which wants one, takes no such pod."""
    changed, warnings = _changed([{"name": "edl-pserver"}], "")

    assert "image" not in changed["spec"]["containers"][0]
    assert warnings == (NO_IMAGE,)


@pytest.mark.parametrize("containers", [None, 7, [None], [{"name": 1}], {}])
def test_odd_containers_are_no_crash(containers: Any) -> None:
    """Whatever somebody labels as a server."""
    assert _changed(containers)[1] == ()
