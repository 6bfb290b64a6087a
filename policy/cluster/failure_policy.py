"""`podFailurePolicy` of a batch/v1 Job: the action for a failed trainer. Pure.

The rules work as in the built-in controller (k8s.io/kubernetes pkg/controller/job, `pod_failure_policy.go`).
They apply to trainers that failed by themselves: a trainer that EDL released or that was disrupted has not
failed.
Called by `reconciler.jobs.accounting`.
"""

from collections.abc import Iterable

from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.cluster.snapshot import Pod


def judge(job_rules: Iterable[FailureRule], pod: Pod) -> tuple[FailureAction, str]:
    """Returns the action of the first rule that matches a failed trainer, and a description for FailJob.

    The description is one line, and "" for other actions. If no rule matches, the action is Count.
    """
    for index, rule in enumerate(job_rules):
        cause = _by_exit_code(rule, pod) or _by_condition(rule, pod)
        if cause:
            text = f"{cause} matching {rule.action} rule at index {index}"
            return rule.action, text if rule.action is FailureAction.FAIL_JOB else ""
    return FailureAction.COUNT, ""


def _by_exit_code(rule: FailureRule, pod: Pod) -> str:
    """Describes the container whose exit code matches the rule; "" if there is none."""
    if not rule.codes:
        return ""
    for container, code in pod.exits:
        listed = code in rule.codes
        if rule.container in ("", container) and code != 0 and listed is not rule.others:
            return f"Container {container} for pod {pod.key} failed with exit code {code}"
    return ""


def _by_condition(rule: FailureRule, pod: Pod) -> str:
    """Describes the pod condition that matches the rule; "" if there is none."""
    for condition in rule.conditions:
        if condition in pod.end_conditions:
            return f"Pod {pod.key} has condition {condition[0]}"
    return ""
