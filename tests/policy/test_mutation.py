from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.admission.mutation import UNTOUCHED, Mutation, check_job, job_patch, pod_patch
from policy.document.model import Policy, Training
from policy.errors import JobError
from policy.names import ANNOTATION_MIN, TRAINER_RESOURCE, Role, Tier
from policy.priority_classes import EDL_CLASSES, PriorityClassValues
from policy.scheduling import UNMARKED, Scheduling
from tests.support.builders import job_view
from tests.webhook.vectors import thing

SELECTING = Policy(
    training=(Training(name="kubeflow", labels={"training.kubeflow.org/job-name": "*"}),)
)
MARKED = Scheduling(marked=True)
Classes = Mapping[str, PriorityClassValues]


def _mutated(pod: dict[str, Any], change: Mutation) -> dict[str, Any]:
    """The object after the patch, as another library reads it."""
    patched: dict[str, Any] = jsonpatch.JsonPatch(list(change.operations)).apply(pod)
    return patched


def _changed(
    pod: dict[str, Any],
    policy: Policy | None = None,
    *,
    namespace: str = "training",
    classes: Classes = EDL_CLASSES,
    scheduling: Scheduling = MARKED,
) -> tuple[dict[str, Any], Mutation]:
    change = pod_patch(pod, namespace, policy or Policy(), classes, scheduling=scheduling)
    return _mutated(pod, change), change


@pytest.mark.parametrize(
    ("name", "role", "tier", "class_name"),
    [
        ("pod-create-trainer", Role.TRAINER, Tier.GUARANTEED, "edl-guaranteed"),
        ("pod-create-builtin-job", Role.TRAINER, Tier.SURPLUS, "edl-surplus"),
        ("pod-create-pserver", Role.PSERVER, Tier.SUPPORT, "edl-support"),
    ],
)
def test_training_pods_get_labels_and_priority(
    name: str, role: Role, tier: Tier, class_name: str
) -> None:
    """Role, tier and all three priority fields agree with each other and with the class."""
    pod, change = _changed(thing(name))

    spec, labels = pod["spec"], pod["metadata"]["labels"]
    priority_class = EDL_CLASSES[class_name]
    assert (change.role, change.tier, change.warnings) == (role, tier, ())
    assert labels["edl.training/role"] == role
    assert labels["edl.training/tier"] == tier
    assert spec["priorityClassName"] == class_name
    assert (spec["priority"], spec["preemptionPolicy"]) == priority_class[:2]


def test_only_support_pods_are_not_preemptible() -> None:
    """EDL itself takes trainers only; support pods are left to kube-scheduler, last."""
    marks = [
        _changed(thing(name))[0]["metadata"]["labels"]["edl.training/preemptible"]
        for name in ("pod-create-trainer", "pod-create-builtin-job", "pod-create-pserver")
    ]

    assert marks == ["true", "true", "false"]


def test_other_pods_are_left_alone() -> None:
    """A service pod, and a pod without labels, are not training pods."""
    for name in ("pod-create-service", "pod-create-no-labels"):
        assert pod_patch(thing(name), "services", SELECTING, EDL_CLASSES) is UNTOUCHED


def test_protected_namespaces_are_left_alone() -> None:
    """No label makes a pod of kube-system give way."""
    pod = thing("pod-create-pserver")

    assert pod_patch(pod, "kube-system", Policy(), EDL_CLASSES) is UNTOUCHED


def test_selected_pods_of_other_operators_are_surplus() -> None:
    """A pod that a selector names becomes a surplus trainer, without a job of ours."""
    pod, change = _changed(thing("pod-create-tfjob-worker"), SELECTING, namespace="vision")

    assert change.tier is Tier.SURPLUS
    assert pod["spec"]["priorityClassName"] == "edl-surplus"
    assert "edl.training/job" not in pod["metadata"]["labels"]


def test_selected_pods_without_labels_get_them() -> None:
    """A selector by namespace works on pods that have no labels at all."""
    policy = Policy(training=(Training(name="batch", namespaces=("batch",), role=Role.MASTER),))

    pod, change = _changed(thing("pod-create-no-labels"), policy, namespace="batch")

    assert pod["metadata"]["labels"] == {
        "edl.training/role": "master",
        "edl.training/tier": "surplus",
        "edl.training/preemptible": "true",
    }
    assert change.tier is Tier.SURPLUS


def test_grace_is_capped_and_never_raised() -> None:
    """A stop time above the policy's is cut to it, a shorter one stays."""
    long, short = thing("pod-create-trainer"), thing("pod-create-trainer")
    short["spec"]["terminationGracePeriodSeconds"] = 3

    graces = [_changed(p)[0]["spec"]["terminationGracePeriodSeconds"] for p in (long, short)]

    assert graces == [10, 3]


def test_grace_not_given_counts_as_the_default() -> None:
    """A pod that is not defaulted yet would get 30 seconds, so it is capped."""
    pod = thing("pod-create-trainer")
    del pod["spec"]["terminationGracePeriodSeconds"]
    generous = Policy.model_validate({"tiers": {"graceSeconds": 60}})

    assert _changed(pod)[0]["spec"]["terminationGracePeriodSeconds"] == 10
    assert "terminationGracePeriodSeconds" not in _changed(pod, generous)[0]["spec"]


def test_first_container_requests_a_trainer() -> None:
    """Limit and request of the extended resource are written, beside what is there."""
    first, second = _changed(thing("pod-create-trainer"))[0]["spec"]["containers"]

    assert first["resources"]["limits"][TRAINER_RESOURCE] == "1"
    assert first["resources"]["requests"] == {"cpu": "5", "memory": "8Gi", TRAINER_RESOURCE: "1"}
    assert second["resources"] == {}


def test_without_the_extender_no_pod_requests_a_trainer() -> None:
    """No scheduler would find a node for it."""
    first = _changed(thing("pod-create-trainer"), scheduling=UNMARKED)[0]["spec"]["containers"][0]

    assert TRAINER_RESOURCE not in first["resources"]["requests"]


@pytest.mark.parametrize(
    ("named", "scheduler", "marked"),
    [("", "edl", True), ("default-scheduler", "edl", True), ("volcano", "volcano", False)],
)
def test_pods_ask_the_policys_scheduler(named: str, scheduler: str, *, marked: bool) -> None:
    """Except those that name another one: whether that ignores the marker nobody knows."""
    pod = thing("pod-create-trainer")
    pod["spec"]["schedulerName"] = named
    changed = _changed(pod, scheduling=Scheduling("edl", marked=True))[0]
    spec, written = changed["spec"], "edl.training/scheduler" in str(changed["metadata"])
    requested = TRAINER_RESOURCE in spec["containers"][0]["resources"]["requests"]
    assert (spec["schedulerName"], requested, written) == (scheduler, marked, marked)


def test_trainer_resource_of_another_container_counts() -> None:
    """A pod that requests it anywhere gets no second one."""
    pod = thing("pod-create-trainer")
    pod["spec"]["containers"][1]["resources"] = {
        "limits": {TRAINER_RESOURCE: "1"},
        "requests": {TRAINER_RESOURCE: "1"},
    }

    first = _changed(pod)[0]["spec"]["containers"][0]

    assert TRAINER_RESOURCE not in first["resources"]["limits"]


def test_unknown_role_counts_as_trainer() -> None:
    """A role we do not know is corrected, and said."""
    pod = thing("pod-create-builtin-job")
    pod["metadata"]["labels"]["edl.training/role"] = "worker"

    after, change = _changed(pod)

    assert after["metadata"]["labels"]["edl.training/role"] == "trainer"
    assert "write master, pserver or trainer" in change.warnings[0]


@pytest.mark.parametrize(
    "name", ["pod-create-trainer", "pod-create-builtin-job", "pod-create-pserver"]
)
def test_twice_is_once(name: str) -> None:
    """A pod that was changed needs no change: the API server asks again."""
    after, _ = _changed(thing(name))

    again = pod_patch(after, "training", Policy(), EDL_CLASSES)

    assert again.operations == ()
    assert again.warnings == ()


@settings(max_examples=50, deadline=None)  # a busy machine is slow, not wrong
@given(
    labels=st.none()
    | st.dictionaries(
        st.sampled_from(["edl.training/role", "a~/b"]), st.sampled_from(["", "x", "trainer"])
    ),
    spec=st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(-10, 10),
            "priorityClassName": st.sampled_from(["", "edl-surplus", "x"]),
            "terminationGracePeriodSeconds": st.none() | st.integers(0, 99),
            "containers": st.lists(
                st.fixed_dictionaries(
                    {"name": st.just("main")},
                    optional={
                        "resources": st.none()
                        | st.fixed_dictionaries(
                            {}, optional={"limits": st.none() | st.just({"cpu": "1"})}
                        )
                    },
                ),
                max_size=2,
            ),
        },
    ),
)
def test_patches_always_apply_and_settle(
    labels: dict[str, str] | None, spec: dict[str, Any]
) -> None:
    """Whatever is missing or null, the patch applies and asking again changes nothing."""
    policy = Policy(training=(Training(name="all", namespaces=("n",)),))
    pod: dict[str, Any] = {"metadata": {"labels": labels}, "spec": spec}

    after, change = _changed(pod, policy, namespace="n")

    assert change.role is not None
    assert pod_patch(after, "n", policy, EDL_CLASSES).operations == ()


@pytest.mark.parametrize("pod", [{}, {"metadata": [], "spec": {"containers": [1]}}])
def test_garbage_is_no_crash(pod: dict[str, Any]) -> None:
    """A file may hold anything; what comes out is a patch that applies."""
    policy = Policy(training=(Training(name="all", namespaces=("n",)),))

    after, _ = _changed(pod, policy, namespace="n")

    assert after["spec"]["priority"] == -1000


def test_elastic_job_becomes_ours() -> None:
    """An annotated Job gets managedBy, min as its size, and loses the defaulted completions."""
    before = thing("job-create-elastic")

    change = job_patch(before, "training", Policy())
    after = _mutated(before, change)

    assert change.role is Role.TRAINER
    assert after["spec"]["managedBy"] == "edl.training/reconciler"
    assert after["spec"]["parallelism"] == 2
    assert "completions" not in after["spec"]
    assert after["spec"]["template"]["metadata"]["labels"] == {
        "edl.training/job": "resnet",
        "edl.training/role": "trainer",
    }
    assert job_patch(after, "training", Policy()).operations == ()


def test_job_without_a_name_yet_gets_no_job_label() -> None:
    """With generateName the name is not known; the reconciler labels its pods itself."""
    before = thing("job-create-generate-name")

    after = _mutated(before, job_patch(before, "training", Policy()))

    assert after["spec"]["template"]["metadata"]["labels"] == {"edl.training/role": "trainer"}


def test_a_manager_that_nobody_is_is_refused() -> None:
    """No controller would ever create its pods; only the reconciler's own name may be written."""
    before = thing("job-create-elastic")
    before["spec"]["managedBy"] = "edl.training/other"
    with pytest.raises(JobError, match=r"spec\.managedBy is edl\.training/other"):
        job_patch(before, "training", Policy())
    before["spec"]["managedBy"] = "edl.training/reconciler"

    after = _mutated(before, job_patch(before, "training", Policy()))

    assert after["spec"]["managedBy"] == "edl.training/reconciler"


def test_plain_jobs_are_left_alone() -> None:
    """A Job without our annotations is none of our business."""
    assert job_patch(thing("job-create-plain"), "training", Policy()) is UNTOUCHED


def test_unknown_labels_and_annotations_of_pods_are_warnings() -> None:
    """With the nearest name, for a pod and for a Job's template; names of others may be anything."""
    metadata = {
        "labels": {"edl.training/job": "a", "edl.training/teer": "guaranteed", "teer": "x"},
        "annotations": {"edl.training/planed-node": "n0", "edl.training/planned-node": "n0"},
    }
    expected = (
        "label edl.training/teer does not exist (did you mean edl.training/tier?)",
        "annotation edl.training/planed-node does not exist "  # noqa: ISC004 - of two lines
        "(did you mean edl.training/planned-node?)",
    )
    pod, job = thing("pod-create-trainer"), thing("job-create-elastic")
    pod["metadata"] |= metadata
    job["spec"]["template"]["metadata"] = metadata

    assert _changed(pod)[1].warnings == expected
    assert job_patch(job, "training", Policy()).warnings == expected


def test_warnings_about_names_are_few_and_short() -> None:
    """The API server cuts each at 120 characters, and all of them at 4096."""
    pod = thing("pod-create-trainer")
    pod["metadata"]["annotations"] = {f"edl.training/x{n:0100}": "" for n in range(50)}

    warnings = _changed(pod)[1].warnings

    assert len(warnings) == 5
    assert max(map(len, warnings)) <= 120


def test_elastic_job_in_a_protected_namespace_is_ordinary() -> None:
    """It is said, not refused."""
    change = job_patch(thing("job-create-elastic"), "kube-public", Policy())

    assert change.operations == ()
    assert "the policy protects namespace kube-public" in change.warnings[0]


def test_contradicting_job_is_refused() -> None:
    """A patch is never made for a Job that cannot work."""
    job = thing("job-create-elastic")
    job["metadata"]["annotations"]["edl.training/min-trainers"] = "61"

    with pytest.raises(JobError, match="min must not exceed max"):
        job_patch(job, "training", Policy())


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("edl.training/weight", "0"), ("edl.training/queue", "q" * 64)],
)
def test_every_annotation_is_checked(annotation: str, value: str) -> None:
    """Weight and queue are refused by name, like the bounds."""
    annotations = thing("job-create-elastic")["metadata"]["annotations"] | {annotation: value}

    with pytest.raises(JobError, match=annotation):
        check_job(job_view(annotations, {}))


def test_bounds_come_back() -> None:
    """A Job in which everything is right has its bounds read."""
    annotations = thing("job-create-elastic")["metadata"]["annotations"]

    settings = check_job(job_view(annotations, {}))

    assert (settings.min_trainers, settings.max_trainers) == (2, 60)
    assert ANNOTATION_MIN in annotations
