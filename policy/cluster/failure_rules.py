"""Rules of a Job's `podFailurePolicy`, as records (`policy.cluster.failure_policy` applies them)."""

from dataclasses import dataclass
from enum import StrEnum


class FailureAction(StrEnum):
    """The action of a rule of `podFailurePolicy` for a failed trainer."""

    IGNORE = "Ignore"
    COUNT = "Count"
    FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """batch/v1 `PodFailurePolicyRule`: it has either exit codes or conditions."""

    action: FailureAction
    container: str = ""
    """The container whose exit code counts; "" for any."""
    codes: frozenset[int] = frozenset()
    others: bool = False
    """Whether the rule matches exit codes that are not in `codes` (NotIn); it never matches 0."""
    conditions: tuple[tuple[str, str], ...] = ()
    """(type, status) of pod conditions; one of them must hold."""
