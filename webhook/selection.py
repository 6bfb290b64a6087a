"""Which pods of other operators the API server shows to the webhook, as the policy names them.

Without selectors in the policy the expression is `false`: a pod that is none of ours is never
shown, waits for nobody, and does not notice whether EDL is there. Pure. Who calls:
`webhook.keeper`, whenever the policy or the registration changes.
"""

import re
from collections.abc import Mapping
from typing import Any

from policy.model import Policy, Selector
from policy.patch import Operation

ENTRY = "selected-pods.webhook.edl.training"
CONDITION = "selected-by-policy"
NOBODY = "false"
_LONGEST = 16_000
"""CEL has a cost limit; a policy with more selectors than this is shown every pod instead."""


def expression(policy: Policy) -> str:
    """A CEL expression that is true for the pods that a `training` selector may name."""
    if not policy.training:
        return NOBODY
    text = " || ".join(_selector(selector) for selector in policy.training)
    return text if len(text) <= _LONGEST else "true"


def publish(registration: Mapping[str, Any], wanted: str) -> list[Operation]:
    """JSON Patch that puts `wanted` into the registration's entry; empty where it is there."""
    for i, entry in enumerate(registration.get("webhooks") or ()):
        if entry.get("name") != ENTRY:
            continue
        for j, condition in enumerate(entry.get("matchConditions") or ()):
            if condition.get("name") == CONDITION and condition.get("expression") != wanted:
                path = f"/webhooks/{i}/matchConditions/{j}"
                return [
                    {"op": "test", "path": f"/webhooks/{i}/name", "value": ENTRY},
                    {"op": "test", "path": f"{path}/name", "value": CONDITION},
                    {"op": "replace", "path": f"{path}/expression", "value": wanted},
                ]
    return []


def _selector(selector: Selector) -> str:
    parts = []
    if "*" not in selector.namespaces:
        names = " || ".join(
            f"request.namespace.matches({_quoted(_regex(p))})" for p in selector.namespaces
        )
        parts.append(f"({names})")
    if selector.labels:
        parts.append("has(object.metadata.labels)")
    for name, pattern in sorted(selector.labels.items()):
        label = _quoted(name)
        value = f"object.metadata.labels[{label}].matches({_quoted(_regex(pattern))})"
        parts.append(f"{label} in object.metadata.labels && {value}")
    return "(" + " && ".join(parts) + ")"


def _regex(pattern: str) -> str:
    """A shell pattern with * and ? as an RE2 expression of the whole text.

    Sets such as [ab] are rare in names; they become "any one character" here, which shows a
    pod too many, and the webhook itself decides exactly.
    """
    pattern = re.sub(r"\[[^\]]*\]", "?", pattern)
    parts = {"*": ".*", "?": "."}
    return "^" + "".join(parts.get(c, re.escape(c)) for c in pattern) + "$"


def _quoted(text: str) -> str:
    """A CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
