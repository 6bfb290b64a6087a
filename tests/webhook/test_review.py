import json
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from policy.document.model import Policy
from policy.document.queue_model import Queue
from policy.priority_classes import EDL_CLASSES
from tests.webhook.vectors import NAMES, request, thing
from webhook import review
from webhook.review import AdmissionContext

STATE = AdmissionContext(Policy(), EDL_CLASSES, "abc")
MIN, MAX = "edl.training/min-trainers", "edl.training/max-trainers"


def _job(**changes: Any) -> dict[str, Any]:
    """The elastic Job of the vectors with annotations or spec fields set (None removes)."""
    job = thing("job-create-elastic")
    for name, value in changes.items():
        place = job["spec"] if name in _SPEC else job["metadata"]["annotations"]
        key = name if name in _SPEC else f"edl.training/{name.replace('_', '-')}"
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
    return job


_SPEC = ("completions", "parallelism", "completionMode", "managedBy")


def _refusal(new: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    """Why a Job is refused, "" if it is not."""
    operation = "CREATE" if old is None else "UPDATE"
    admission_request = request(
        "job-create-elastic", object=new, old_object=old, operation=operation
    )
    return review.validate(admission_request, STATE).message


def test_a_queue_of_other_namespaces_is_refused() -> None:
    """At creation, and when the annotation changes; an update of other fields is not held up."""
    policy = Policy(queues=(Queue(name="gold", namespaces=("others",)),))
    old, new = _job(queue=None), _job(queue="gold")

    def refusal(body: dict[str, Any], before: dict[str, Any] | None = None) -> str:
        operation = "CREATE" if before is None else "UPDATE"
        asked = request("job-create-elastic", object=body, old_object=before, operation=operation)
        return review.validate(asked, replace(STATE, policy=policy)).message

    assert "edl.training/queue is 'gold'" in refusal(new)
    assert "edl.training/queue is 'gold'" in refusal(new, old)
    assert refusal(new, new) == refusal(old) == refusal(old, new) == ""


def test_a_running_job_does_not_move_into_a_queue_that_lends() -> None:
    """Its guaranteed trainers would count there above the quota; a suspended one without trainers may."""
    lending = Queue(name="lending", namespaces=("*",), nominal_quota={"cpu": "4"})
    policy = Policy(queues=(lending, Queue(name="plain", namespaces=("*",), default=True)))
    old, new = _job(queue=None), _job(queue="lending")

    def refusal(before: dict[str, Any], after: dict[str, Any]) -> str:
        asked = request("job-create-elastic", object=after, old_object=before, operation="UPDATE")
        return review.validate(asked, replace(STATE, policy=policy)).message

    suspended = {**old, "spec": {**old["spec"], "suspend": True}}
    ending = {**suspended, "status": {"active": 1}}

    assert refusal(old, new).startswith(
        "edl.training/queue would put a Job that may run into queue 'lending'"
    )
    assert refusal(ending, new)
    assert refusal(suspended, new) == refusal(new, old) == refusal(old, _job(queue="plain")) == ""


@pytest.mark.parametrize("name", NAMES)
def test_mutation_never_refuses(name: str) -> None:
    """Every recorded review is allowed by /mutate, whatever it holds."""
    answer = review.mutate(request(name), STATE)

    assert answer.allowed
    assert answer.uid == request(name).uid


def test_patch_of_a_pod_with_its_audit_notes() -> None:
    """A trainer is patched, and the audit log learns under which policy and as what."""
    answer = review.mutate(request("pod-create-trainer"), STATE)

    assert answer.outcome == "patched"
    assert answer.audit == {"policy": "abc", "role": "trainer", "tier": "guaranteed"}


def test_only_creation_mutates() -> None:
    """Most patched fields can only be set at creation; status writes are not patched."""
    for changes in ({"operation": "UPDATE"}, {"sub_resource": "status"}, {"object": None}):
        assert review.mutate(request("pod-create-trainer", **changes), STATE).outcome == "allowed"


def test_bad_job_is_left_for_validation() -> None:
    """Mutation leaves an invalid Job unchanged; validation then reports the error."""
    bad = _job(min_trainers="61")

    mutated = review.mutate(request("job-create-elastic", object=bad), STATE)

    assert mutated.outcome == "allowed"
    assert "min must not exceed max" in _refusal(bad)


def test_mutated_job_is_valid() -> None:
    """Validation accepts the mutated form of a valid Job."""
    job = thing("job-create-elastic")
    answer = review.mutate(request("job-create-elastic"), STATE)
    after = jsonpatch.JsonPatch(list(answer.operations)).apply(job)

    assert _refusal(after) == ""
    assert _refusal(after, after) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"min_trainers": "0"}, f"{MIN} is 0: write a whole number from 1"),
        ({"min_trainers": "two"}, f"{MIN} is 'two'"),
        ({"max_trainers": None}, f"{MAX} is missing"),
        ({"min_trainers": None}, f"{MIN} is missing"),
        ({"weight": "-1"}, "edl.training/weight is '-1'"),
        ({"completions": 10}, "spec.completions is 10"),
        ({"completionMode": "Indexed"}, "spec.completionMode Indexed"),
        ({"managedBy": "example.com/other"}, "spec.managedBy is example.com/other"),
    ],
)
def test_bad_jobs_are_refused_by_field(changes: dict[str, Any], expected: str) -> None:
    """The message names annotation or field and what would be right."""
    assert expected in _refusal(_job(**changes))


def test_jobs_that_are_not_elastic_pass() -> None:
    """A plain Job may be anything."""
    assert review.validate(request("job-create-plain"), STATE).allowed


def test_managed_job_keeps_its_annotations() -> None:
    """Without them no controller would run its pods, because managedBy is immutable."""
    managed = _job(managedBy="edl.training/reconciler")
    stripped = _job(managedBy="edl.training/reconciler", min_trainers=None, max_trainers=None)

    assert "set both" in _refusal(stripped, managed)
    assert "set both" in _refusal(stripped)


def test_a_misspelt_annotation_is_refused_when_it_is_written() -> None:
    """A stored one, of another version perhaps, does not block updates."""
    misspelt = _job(qeue="research", completions=None)

    assert "edl.training/qeue does not exist: write edl.training/queue" in _refusal(misspelt)
    assert "does not exist" in _refusal(misspelt, _job(completions=None))
    assert _refusal(misspelt, _job(qeue="other", completions=None)) == ""


def test_a_job_that_only_meant_to_be_elastic_is_refused() -> None:
    """With both bounds misspelt it would run as an ordinary Job."""
    job = thing("job-create-plain")
    job["metadata"]["annotations"] = {
        "edl.training/min-trainer": "2",
        "edl.training/maxtrainers": "4",
    }

    refusal = _refusal(job)

    assert "edl.training/maxtrainers does not exist: write edl.training/max-trainers" in refusal


def test_update_checks_what_changes() -> None:
    """New bounds are checked; they may move while the job runs."""
    old = _job(completions=None)

    assert review.validate(request("job-update-bounds"), STATE).allowed
    assert "min must not exceed max" in _refusal(_job(max_trainers="1", completions=None), old)
    assert "spec.completions is 5" in _refusal(_job(completions=5), old)


def test_update_leaves_old_mistakes_alone() -> None:
    """An invalid Job stored during an outage can still be changed otherwise, even scaled."""
    old = _job(max_trainers="nonsense", completions=1, parallelism=1)
    new = _job(max_trainers="nonsense", completions=1, parallelism=7)

    assert _refusal(new, old) == ""
    assert _refusal(new) != ""


def test_a_master_needs_an_image() -> None:
    """A Job that asks for one is refused where EDL could not give it one."""
    job = _job(master="true")
    able = replace(STATE, master_image="edl")

    assert "--master-image" in _refusal(job)
    assert review.validate(request("job-create-elastic", object=job), able).allowed


def test_a_master_of_the_users_needs_no_image_of_edl() -> None:
    """It has its own."""
    container = {"name": "own", "image": "own:1", "ports": [{"containerPort": 1}]}
    template = json.dumps({"spec": {"containers": [container]}})

    assert _refusal(_job(master="true", master_template=template)) == ""
    assert "is not JSON" in _refusal(_job(master="true", master_template="{"))


def test_sizes_may_change() -> None:
    """Trainers come and go by them; a wrong one is refused then, too."""
    old = _job(sizes="2,4")

    assert _refusal(_job(sizes="2,8"), old) == ""
    assert "edl.training/sizes is 'x'" in _refusal(_job(sizes="2,x"), old)


def test_a_master_neither_comes_nor_goes() -> None:
    """Living pods could not follow."""
    assert "edl.training/master cannot change" in _refusal(_job(master="true"), _job())
    assert "edl.training/master cannot change" in _refusal(_job(), _job(master="true"))
    assert _refusal(_job(master="true", weight="2"), _job(master="true")) == ""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parameter_servers": "2"}, "edl.training/parameter-servers needs a master"),
        ({"master": "true", "parameter_servers": "99"}, "edl.training/parameter-servers is 99"),
        ({"master": "true", "parameter_server_cpu": "2"}, "the Job requests none"),
        (
            {"checkpoint_claim": "nets"},
            "edl.training/checkpoint-claim applies to parameter servers",
        ),
        ({"master_max_steps": "5"}, "edl.training/master-max-steps needs a master"),
        ({"token_generation": "2"}, "edl.training/token-generation needs a master"),
        ({"master": "true", "token_generation": "0"}, "edl.training/token-generation is 0"),
        ({"master": "true", "master_heartbeat_seconds": "x"}, "edl.training/master-heartbeat"),
    ],
)
def test_wrong_wishes_for_servers_are_refused(changes: dict[str, Any], expected: str) -> None:
    """The message is one line that names the annotation."""
    message = _refusal(_job(**changes))

    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "name",
    [
        *("parameter_servers", "parameter_server_cpu", "parameter_server_memory"),
        *("checkpoint_claim", "master_max_steps", "master_heartbeat_seconds"),
        *("parameter_server_template", "master_template", "master_cpu", "master_memory"),
        *("processes", "environment"),
    ],
)
def test_what_pods_could_not_follow_does_not_change(name: str) -> None:
    """They can neither be changed nor removed."""
    annotations = {"master": "true", "parameter_servers": "2"}
    old, new = _job(**{**annotations, name: "1"}), _job(**{**annotations, name: "3"})

    assert f"{name.replace('_', '-')} cannot change, because the Job's pods" in _refusal(new, old)
    assert "cannot change" in _refusal(new, _job(**{**annotations, name: None}))


def test_a_token_can_be_renewed() -> None:
    """While the job runs; what is not a number is refused then, too."""
    old = _job(master="true")
    new, wrong = (_job(master="true", token_generation=text) for text in "2x")

    assert _refusal(new, old) == ""
    assert "token-generation is 'x'" in _refusal(wrong, old)


def test_a_wrong_wish_for_a_master_is_refused() -> None:
    """Naming the annotation and what would be right."""
    assert "edl.training/master is 'yes': write \"true\"" in _refusal(_job(master="yes"))


def test_becoming_elastic_checks_everything() -> None:
    """Annotating an existing Job is like creating it."""
    old = _job(min_trainers=None, max_trainers=None)

    assert "spec.completions is 9" in _refusal(_job(completions=9), old)


@pytest.mark.parametrize(
    "over",
    [
        {"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}},
        {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
    ],
)
def test_jobs_that_are_over_are_not_blocked(over: dict[str, Any]) -> None:
    """Finalizers and labels of a finished or deleted Job can always be changed."""
    new = _job(max_trainers="1")
    for part, values in over.items():
        new[part] |= values

    assert _refusal(new, _job()) == ""


def test_jobs_of_protected_namespaces_are_ordinary() -> None:
    """Jobs that EDL does not manage are not validated."""
    admission_request = request(
        "job-create-elastic", object=_job(min_trainers="x"), namespace="kube-system"
    )

    assert review.validate(admission_request, STATE).allowed


def test_good_policy_is_accepted() -> None:
    """The policy ConfigMap may be created and changed."""
    assert review.validate(request("configmap-create-policy"), STATE).allowed


def test_bad_policy_is_refused_with_every_problem() -> None:
    """All fields at fault are named at once."""
    message = review.validate(request("configmap-update-policy-bad"), STATE).message

    assert "policy.yaml: reserve.maxLoad.cpu: " in message
    assert "tears: unknown field" in message


@pytest.mark.parametrize("data", [None, {}, {"policy.yml": "{}"}])
def test_policy_without_its_key_is_refused(data: dict[str, str] | None) -> None:
    """A slip in the key would silently mean the last policy stays."""
    configmap = thing("configmap-create-policy") | {"data": data}

    answer = review.validate(request("configmap-create-policy", object=configmap), STATE)

    assert "data has no key policy.yaml" in answer.message


def test_other_configmaps_are_not_policies() -> None:
    """Another name, another namespace, or one that is being deleted is not checked."""
    bad = request("configmap-update-policy-bad")
    deleting = thing("configmap-update-policy-bad")
    deleting["metadata"]["deletionTimestamp"] = "2026-03-01T11:00:00Z"

    answers = [
        review.validate(bad.model_copy(update=update), STATE)
        for update in ({"name": "edl"}, {"namespace": "team"}, {"object": deleting})
    ]

    assert all(answer.allowed for answer in answers)


def test_everything_else_is_allowed() -> None:
    """Deletions, subresources, reviews without object and other kinds are not checked."""
    bad = request("configmap-update-policy-bad")
    changes: list[dict[str, Any]] = [
        {"operation": "DELETE"},
        {"sub_resource": "status"},
        {"object": None},
        {"resource": request("pod-create-service").resource},
    ]

    answers = [review.validate(bad.model_copy(update=update), STATE) for update in changes]

    assert all(answer.allowed for answer in answers)
    assert {answer.uid for answer in answers} == {bad.uid}
    assert review.mutate(bad, STATE).outcome == "allowed"
    assert review.mutate(request("configmap-create-policy"), STATE).outcome == "allowed"


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": None, "spec": []},
        {"metadata": {"annotations": {MIN: 1, MAX: ["x"]}}},
        {"metadata": {"annotations": {MIN: "1", MAX: "2"}}, "spec": None, "status": "x"},
        {"metadata": {"annotations": {MIN: "1", MAX: "2"}}, "status": {"conditions": [None]}},
    ],
)
def test_odd_objects_are_no_crash(broken: dict[str, Any]) -> None:
    """Objects that no API server would send are answered all the same."""
    admission_request = request("job-create-elastic", object=broken)

    assert review.mutate(admission_request, STATE).allowed
    assert review.validate(admission_request, STATE).allowed


def test_a_policy_without_a_name_in_the_request_is_checked_too() -> None:
    """The API server leaves it out where it makes the name itself."""
    asked = request("configmap-update-policy-bad").model_copy(update={"name": ""})

    assert "reserve.maxLoad.cpu: " in review.validate(asked, STATE).message
