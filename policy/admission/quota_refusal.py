"""Parses the API server's refusal of a pod that exceeds a ResourceQuota. Pure.

The refusal has this form (apiserver `plugin/pkg/admission/resourcequota/controller.go`):
`exceeded quota: NAME, requested: cpu=5,pods=1, used: cpu=20,pods=4, limited: cpu=20,pods=4`.
It names a single exceeded quota, with only those resources that are exceeded.
"""

import re
from collections.abc import Mapping

from policy import quantity
from policy.errors import QuantityError

_TEXT = re.compile(r"exceeded quota: \S+, requested: \S+, used: (\S+), limited: (\S+)")
_MAX_TEXT = 4096
_REQUESTS, _LIMITS, _COUNT = "requests.", "limits.", "count/"


def unused(refusal: str) -> Mapping[str, int]:
    """Returns resource -> unused amount of the quota, at least 0; empty for any other refusal.

    Resources are named as in `policy.cluster.quota_amounts`, so `requests.cpu` is `cpu`.
    """
    match = _TEXT.search(refusal[:_MAX_TEXT])
    if match is None:
        return {}
    used, limited = (_amounts(text) for text in match.groups())
    return {name: max(0, limit - used[name]) for name, limit in limited.items() if name in used}


def _amounts(text: str) -> dict[str, int]:
    """Parses `cpu=20,pods=4`; malformed amounts are left out."""
    amounts: dict[str, int] = {}
    for entry in text.rstrip(",").split(","):
        name, _, value = entry.partition("=")
        name = name.removeprefix(_REQUESTS).removeprefix(_COUNT)
        try:
            amounts[name] = quantity.parse(name.removeprefix(_LIMITS), value)
        except QuantityError:
            continue
    return amounts
