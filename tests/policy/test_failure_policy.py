from dataclasses import replace

import pytest

from policy.admission import job_spec, mutation
from policy.cluster import failure_policy
from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.cluster.snapshot import Phase
from policy.errors import JobError
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN
from tests.support.builders import job, job_view, trainer

_FAILED = replace(
    trainer(job("net"), 0, "n0"),
    phase=Phase.FAILED,
    exits=(("main", 42), ("log", 0), ("setup", 3)),
    end_conditions=(("ConfigIssue", "True"), ("Ready", "False")),
)


def _codes(action: str, *values: int, operator: str = "In", **fields: object) -> dict[str, object]:
    return {
        "action": action,
        "onExitCodes": {"operator": operator, "values": list(values), **fields},
    }


def _conditions(action: str, **statuses: str) -> dict[str, object]:
    patterns = [{"type": kind, "status": status} for kind, status in statuses.items()]
    return {"action": action, "onPodConditions": patterns}


def _rules(*entries: object) -> tuple[FailureRule, ...]:
    return job_view({}, {"podFailurePolicy": {"rules": list(entries)}}).failure_rules


def _judged(*entries: object) -> FailureAction:
    rules = _rules(*entries)
    return failure_policy.judge(rules, _FAILED)[0]


@pytest.mark.parametrize(
    ("entry", "matches"),
    [
        (_codes("Ignore", 42), True),
        (_codes("Ignore", 1, 3), True),
        (_codes("Ignore", 0), False),
        (_codes("Ignore", 42, containerName="main"), True),
        (_codes("Ignore", 42, containerName="log"), False),
        (_codes("Ignore", 42, 3, operator="NotIn"), False),
        (_codes("Ignore", 42, operator="NotIn"), True),
        (_codes("Ignore", 1, operator="NotIn", containerName="log"), False),
        (_conditions("Ignore", ConfigIssue="True"), True),
        (_conditions("Ignore", Other="True", ConfigIssue="True"), True),
        (_conditions("Ignore", ConfigIssue="False"), False),
        ({"action": "Ignore", "onPodConditions": [{"type": "ConfigIssue"}]}, True),
        ({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}, False),
    ],
)
def test_rules_match_as_in_the_built_in_controller(
    entry: dict[str, object], *, matches: bool
) -> None:
    """NotIn never matches 0, a named container is the only one, one condition is enough."""
    expected = FailureAction.IGNORE if matches else FailureAction.COUNT

    assert _judged(entry) is expected


def test_the_first_rule_that_matches_decides() -> None:
    """What no rule matches counts."""
    assert _judged(_codes("Count", 42), _codes("FailJob", 42)) is FailureAction.COUNT
    assert _judged(_codes("Ignore", 7), _codes("FailJob", 42)) is FailureAction.FAIL_JOB
    assert _judged() is FailureAction.COUNT


def test_a_failed_job_is_told_why() -> None:
    """With the words of the built-in controller."""
    entries = [_codes("Ignore", 7), _codes("FailJob", 42)]
    rules = _rules(*entries)

    assert failure_policy.judge(rules, _FAILED)[1] == (
        "Container main for pod ml/net-trainer-0 failed with exit code 42 matching FailJob rule at "
        "index 1"
    )
    by_condition = _rules(_conditions("FailJob", ConfigIssue="True"))
    assert failure_policy.judge(by_condition, _FAILED)[1] == (
        "Pod ml/net-trainer-0 has condition ConfigIssue matching FailJob rule at index 0"
    )


@pytest.mark.parametrize("spec", [{}, {"podFailurePolicy": None}, {"podFailurePolicy": []}])
def test_no_policy_is_no_rules(spec: dict[str, object]) -> None:
    """Nor is what is no policy; the API server refuses it."""
    assert job_view({}, spec).failure_rules == ()


def test_values_that_are_no_codes_match_nothing() -> None:
    """Admission sees objects before the API server has validated them."""
    entry = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": "42"}}
    assert _judged(entry, _codes("Ignore", "42")) is FailureAction.COUNT  # type: ignore[arg-type]  # what is not a number


@pytest.mark.parametrize("action", ["Count", "FailJob"])
def test_a_disruption_cannot_be_made_a_failure(action: str) -> None:
    """Trainers of an elastic job are disrupted daily; admission says so."""
    annotations = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "2"}
    rules = [_codes("Ignore", 7), _conditions(action, DisruptionTarget="True")]
    spec = {"podFailurePolicy": {"rules": rules}}

    with pytest.raises(JobError, match=rf"rules\[1\] is {action} for DisruptionTarget"):
        mutation.check_job(job_view(annotations, spec))


def test_a_disruption_may_be_ignored() -> None:
    """As it is anyway: the rule is in many manifests."""
    rules = [_conditions("Ignore", DisruptionTarget="True")]

    job_spec.check_failure_rules(job_view({}, {"podFailurePolicy": {"rules": rules}}))
