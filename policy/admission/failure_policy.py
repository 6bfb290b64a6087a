"""`podFailurePolicy` of a batch/v1 Job: what one failed trainer means for its job.

The rules are those of the built-in controller (k8s.io/kubernetes pkg/controller/job,
`pod_failure_policy.go`), for trainers that failed by themselves: one that EDL released or that was
disrupted is not a failure, so no rule is asked. Pure. Called by `kube.decode` and
`reconciler.jobs.accounting`.
"""

from collections.abc import Iterable, Mapping

from policy.admission import unstructured
from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.cluster.snapshot import Pod
from policy.errors import JobError

_ACTIONS = {str(action): action for action in FailureAction}
_DISRUPTED = "DisruptionTarget"


def rules(spec: Mapping[str, object]) -> tuple[FailureRule, ...]:
    """The rules of a JobSpec in their order; those of an unknown action are left out."""
    policy = unstructured.mapping(spec, "podFailurePolicy")
    return tuple(
        _rule(entry, _ACTIONS[str(entry.get("action"))])
        for entry in unstructured.objects(policy, "rules")
        if str(entry.get("action")) in _ACTIONS
    )


def _rule(entry: Mapping[str, object], action: FailureAction) -> FailureRule:
    codes = unstructured.mapping(entry, "onExitCodes")
    values = codes.get("values")
    return FailureRule(
        action,
        container=str(codes.get("containerName") or ""),
        codes=frozenset(code for code in values if isinstance(code, int))
        if isinstance(values, list)
        else frozenset(),
        others=codes.get("operator") == "NotIn",
        conditions=tuple(
            (str(pattern.get("type")), str(pattern.get("status") or "True"))
            for pattern in unstructured.objects(entry, "onPodConditions")
        ),
    )


def check(spec: Mapping[str, object]) -> None:
    """Rejects rules that make a disruption a failure: trainers of an elastic job are disrupted daily.

    Raises:
        JobError: the rule, and what would be right.
    """
    for index, rule in enumerate(rules(spec)):
        disrupted = any(condition == _DISRUPTED for condition, _ in rule.conditions)
        if disrupted and rule.action is not FailureAction.IGNORE:
            raise JobError(
                f"spec.podFailurePolicy.rules[{index}] is {rule.action} for {_DISRUPTED}: services "
                "preempt trainers, so a disruption never counts as a failure of an elastic job: remove "
                "the rule"
            )


def judge(job_rules: Iterable[FailureRule], pod: Pod) -> tuple[FailureAction, str]:
    """What a failed trainer means, by the first rule that matches, and one line for FailJob.

    A failure that no rule matches counts.
    """
    for index, rule in enumerate(job_rules):
        cause = _by_exit_code(rule, pod) or _by_condition(rule, pod)
        if cause:
            text = f"{cause} matching {rule.action} rule at index {index}"
            return rule.action, text if rule.action is FailureAction.FAIL_JOB else ""
    return FailureAction.COUNT, ""


def _by_exit_code(rule: FailureRule, pod: Pod) -> str:
    """The container that the rule matches, in words; "" for none."""
    if not rule.codes:
        return ""
    for container, code in pod.exits:
        listed = code in rule.codes
        if rule.container in ("", container) and code != 0 and listed is not rule.others:
            return f"Container {container} for pod {pod.key} failed with exit code {code}"
    return ""


def _by_condition(rule: FailureRule, pod: Pod) -> str:
    """The condition that the rule matches, in words; "" for none."""
    for condition in rule.conditions:
        if condition in pod.end_conditions:
            return f"Pod {pod.key} has condition {condition[0]}"
    return ""
