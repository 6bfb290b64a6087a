from typing import Any

import pytest

from policy.admission import job_settings, job_spec, mutation
from policy.errors import JobError
from policy.names import (
    ANNOTATION_DATA,
    ANNOTATION_EPOCHS,
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_STUCK,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_WEIGHT,
)
from tests.support.builders import job_view


def _bounds(low: str, high: str) -> dict[str, str]:
    return {ANNOTATION_MIN: low, ANNOTATION_MAX: high}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("edl.training/min-trainer", "write edl.training/min-trainers"),
        ("edl.training/parameter-servers-cpu", "write edl.training/parameter-server-cpu"),
        ("edl.training/zzz", "docs/annotations.md lists all"),
    ],
)
def test_an_annotation_that_does_not_exist_is_refused(name: str, advice: str) -> None:
    """With the nearest name that does; those of others are none of our business."""
    job_spec.check_names([ANNOTATION_MIN, "edl.training/books", "example.com/min-trainer"])
    with pytest.raises(JobError, match=advice):
        job_spec.check_names([ANNOTATION_MAX, name])


def test_either_bound_makes_a_job_elastic() -> None:
    """A Job with one bound only is meant to be elastic, and refused for what is missing."""
    assert job_settings.is_elastic({ANNOTATION_MIN: "1"})
    assert job_settings.is_elastic({ANNOTATION_MAX: "1"})
    assert not job_settings.is_elastic({"other": "1"})


@pytest.mark.parametrize(("low", "high"), [("2", "60"), ("1", "1"), (" 3 ", "10000")])
def test_good_bounds_are_read(low: str, high: str) -> None:
    """Whole numbers from 1 to 10000, spaces around them forgiven."""
    assert job_settings.bounds(_bounds(low, high)) == (int(low), int(high))


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "", "two", "1.5", "1e3", "٣", "10001", "1000000000", "9" * 5_000, "0x10", "+2"],
)
@pytest.mark.parametrize("name", [ANNOTATION_MIN, ANNOTATION_MAX])
def test_bad_bounds_are_refused(name: str, text: str) -> None:
    """Zero, negative, not a number, absurdly large: the message names the annotation and a range."""
    annotations = _bounds("1", "10000") | {name: text}

    with pytest.raises(JobError, match=f"^{name} is .*write a whole number from 1 to") as refusal:
        job_settings.bounds(annotations)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("present", "missing"), [(ANNOTATION_MIN, ANNOTATION_MAX), (ANNOTATION_MAX, ANNOTATION_MIN)]
)
def test_both_bounds_are_needed(present: str, missing: str) -> None:
    """The one that is missing is named."""
    with pytest.raises(JobError, match=f"^{missing} is missing"):
        job_settings.bounds({present: "2"})


def test_min_above_max_is_refused() -> None:
    """Both annotations and both numbers are named."""
    with pytest.raises(JobError, match=f"{ANNOTATION_MIN} is 5 and {ANNOTATION_MAX} is 4"):
        job_settings.bounds(_bounds("5", "4"))


def test_weight_is_one_unless_given() -> None:
    """A weight is a whole number from 1 to 1000."""
    assert job_settings.weight({}) == 1
    assert job_settings.weight({ANNOTATION_WEIGHT: "7"}) == 7
    with pytest.raises(JobError, match=f"{ANNOTATION_WEIGHT} is 1001"):
        job_settings.weight({ANNOTATION_WEIGHT: "1001"})


def test_a_master_is_asked_for_by_true() -> None:
    """Absent and "false" mean none; anything else is refused by name."""
    assert job_settings.master({ANNOTATION_MASTER: "true"})
    assert not job_settings.master({ANNOTATION_MASTER: "false"})
    assert not job_settings.master({})
    with pytest.raises(JobError, match=r"edl.training/master is 'yes': write \"true\""):
        job_settings.master({ANNOTATION_MASTER: "yes"})


def test_a_master_may_be_told_how_to_run() -> None:
    """As annotations for the pod that carries it."""
    settings = {
        ANNOTATION_MASTER_STEPS: " 500 ",
        ANNOTATION_MASTER_HEARTBEAT: "0.5",
        ANNOTATION_DATA: "/data/train set",
        ANNOTATION_EPOCHS: "12",
    }
    parsed = job_settings.master_settings({ANNOTATION_MASTER: "true", **settings})

    assert parsed == {**settings, ANNOTATION_MASTER_STEPS: "500"}
    assert job_settings.master_settings({}) == {}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (ANNOTATION_MASTER_STEPS, "0", "write a whole number from 1"),
        (ANNOTATION_MASTER_STEPS, "many", "'many': write a whole number"),
        (ANNOTATION_MASTER_HEARTBEAT, "0.01", r"write seconds from 0\.05 to 60"),
        (ANNOTATION_MASTER_HEARTBEAT, "61", "write seconds"),
        (ANNOTATION_MASTER_STUCK, "0.5", "write seconds from 1 to 86400"),
        (ANNOTATION_MASTER_HEARTBEAT, "1e1", "write seconds"),
        (ANNOTATION_MASTER_HEARTBEAT, "--help", "write seconds"),
        (ANNOTATION_EPOCHS, "1000001", "write a whole number from 1 to 1000000"),
        (ANNOTATION_DATA, " ", "write a path of the trainers"),
        (ANNOTATION_DATA, "/data\n--help", "in one line"),
        (ANNOTATION_DATA, "/" + 1024 * "a", "at most 1024 characters"),
    ],
)
def test_what_no_master_takes_is_refused(name: str, text: str, words: str) -> None:
    """Before a pod starts that would end at once."""
    with pytest.raises(JobError, match=f"^{name} is .*{words}"):
        job_settings.master_settings({ANNOTATION_MASTER: "true", name: text})


@pytest.mark.parametrize(
    "name",
    [ANNOTATION_MASTER_STEPS, ANNOTATION_MASTER_HEARTBEAT, ANNOTATION_DATA, ANNOTATION_EPOCHS],
)
def test_settings_of_a_master_need_one(name: str) -> None:
    """They would be lost in silence."""
    with pytest.raises(JobError, match=f"^{name} needs a master"):
        job_settings.master_settings({name: "5"})


def test_a_queue_is_a_short_name() -> None:
    """No queue is the empty one; what is longer than a label value is refused."""
    assert job_settings.queue({}) == ""
    assert job_settings.queue({ANNOTATION_QUEUE: "night"}) == "night"
    odd_values: list[Any] = ["q" * 64, {}, [], 1]
    for odd in odd_values:
        with pytest.raises(JobError, match=f"{ANNOTATION_QUEUE} is not text of at most 63"):
            job_settings.queue({ANNOTATION_QUEUE: odd})


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"completionMode": "NonIndexed"},
        {"completions": 1, "parallelism": 1},
        {"completions": 1},
        {"parallelism": 5},
        {"managedBy": "edl.training/reconciler"},
    ],
)
def test_specs_that_agree_with_elasticity_pass(spec: dict[str, object]) -> None:
    """What the API server fills in by itself is taken as not given."""
    job_spec.check_spec(job_view({}, spec))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"completionMode": "Indexed"}, "spec.completionMode Indexed .* leave it out"),
        ({"completions": 5}, "spec.completions is 5: .* leave it out"),
        ({"completions": 1, "parallelism": 3}, "spec.completions is 1: .* leave it out"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy is kueue.* leave it out"),
        (
            {"template": {"spec": {"initContainers": [{"name": "edl-master"}]}}},
            "initContainers: edl-master .* give yours another name",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "edl-pserver"}]}}},
            "spec.containers: edl-pserver .* give yours another name",
        ),
        (
            {"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}},
            "spec.template.spec.resourceClaims: EDL does not count the devices of claims",
        ),
        (
            {
                "template": {
                    "spec": {
                        "containers": [
                            {"resources": {"requests": {"cpu": "1"}}},
                            {
                                "resources": {
                                    "limits": {"deviceclass.resource.kubernetes.io/a": "1"}
                                }
                            },
                        ]
                    }
                }
            },
            r"spec.containers\[1\].resources.limits: deviceclass.* does not count the devices",
        ),
        ({"managedBy": "edl.training/other"}, "spec.managedBy is edl.training/other: .* leave it"),
    ],
)
def test_specs_that_contradict_elasticity_are_refused(spec: dict[str, object], words: str) -> None:
    """The message names the field and the way out."""
    with pytest.raises(JobError, match=words):
        job_spec.check_spec(job_view({}, spec))


def test_a_stored_default_job_cannot_be_elastic() -> None:
    """With the API server's completions of 1 and the built-in controller it can be one pod only."""
    with pytest.raises(JobError) as caught:
        job_spec.check_stored(job_view({}, {"completions": 1, "parallelism": 1}))

    assert str(caught.value) == (
        "spec.completions is 1: the Job was created while EDL's webhook was down, and the built-in "
        "controller creates no more pods than that"
    )

    job_spec.check_stored(job_view({}, {"parallelism": 1}))
    managed = {"completions": 1, "managedBy": "edl.training/reconciler"}
    job_spec.check_stored(job_view({}, managed))


@pytest.mark.parametrize(
    ("fields", "annotations", "message"),
    [
        (
            {"nodeName": "n0"},
            {},
            r"node would reject those .* no capacity; write nodeSelector: kubernetes\.io/hostname instead$",
        ),
        ({"nodeName": ""}, {}, ""),
        ({"hostNetwork": True}, {ANNOTATION_MASTER: "true"}, "listen on fixed ports"),
        ({"hostNetwork": True}, {}, ""),
        ({"hostNetwork": False}, {ANNOTATION_MASTER: "true"}, ""),
    ],
)
def test_templates_of_which_nobody_can_say_where_they_fit_are_refused(
    fields: dict[str, object], annotations: dict[str, str], message: str
) -> None:
    """At admission, with the field; otherwise trainers would be made in vain."""
    bounds = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "2"}
    job = job_view(bounds | annotations, {"template": {"spec": fields}})
    if not message:
        assert mutation.check_job(job).max_trainers == 2
        return
    with pytest.raises(JobError, match=message):
        mutation.check_job(job)


def test_a_token_has_a_generation() -> None:
    """The first one where none is named."""
    named = {ANNOTATION_MASTER: "true", ANNOTATION_TOKEN_GENERATION: "7"}

    assert job_settings.token_generation({}) == 1
    assert job_settings.token_generation(named) == 7
    with pytest.raises(JobError, match="token-generation needs a master"):
        job_settings.token_generation({ANNOTATION_TOKEN_GENERATION: "7"})
