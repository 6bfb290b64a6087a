"""The API server's words about an exceeded ResourceQuota."""

import pytest

from policy.admission import quota_refusal

_WORDS = 'create pods: 403: pods "a-trainer-0" is forbidden: exceeded quota: '


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        ("team, requested: cpu=5, used: cpu=18, limited: cpu=20", {"cpu": 2000}),
        (
            "q, requested: requests.cpu=5,pods=1, used: requests.cpu=2,pods=4, limited: requests.cpu=2,pods=4",
            {"cpu": 0, "pods": 0},
        ),
        (
            "q, requested: limits.cpu=1, used: limits.cpu=9500m,count/pods=3, limited: limits.cpu=10,count/pods=2",
            {"limits.cpu": 500, "pods": 0},
        ),
        ("q, requested: memory=1Gi, used: memory=3Gi, limited: memory=3Gi", {"memory": 0}),
        ("q, requested: cpu=1, used: cpu=x, limited: cpu=3", {}),
        ("q, requested: cpu=1, used: memory=1, limited: cpu=3,,=", {}),
        ("q, limited: cpu=3", {}),
        ("", {}),
        ("q, requested: cpu=1, used: cpu=1, limited: cpu=" + "9" * 10_000, {}),
    ],
)
def test_what_is_left_of_a_quota(words: str, unused: dict[str, int]) -> None:
    """By the names of the policy's quotas; of what is no such refusal nothing is known."""
    assert quota_refusal.unused(_WORDS + words) == unused


def test_other_refusals_say_nothing() -> None:
    """Pod Security, policies, or no refusal at all."""
    assert quota_refusal.unused("") == {}
    assert quota_refusal.unused("pods are forbidden: violates PodSecurity") == {}
