"""Selects, according to the policy, which pods of other operators the API server sends to the webhook.

If the policy has no selectors, the expression is `false`: such pods are never sent to the webhook and do
not depend on it. Pure. Called by `webhook.certificate_rotator` whenever the policy or the registration
changes.
"""

import re
from collections.abc import Mapping
from typing import Any

from policy.admission.patch import Operation
from policy.document.model import Policy, Selector

ENTRY = "selected-pods.webhook.edl.training"
CONDITION = "selected-by-policy"
NO_PODS = "false"
_MAX_EXPRESSION_CHARS = 16_000
"""CEL has a cost limit; instead of using a longer expression, every pod is sent to the webhook."""


def expression(policy: Policy) -> str:
    """Returns a CEL expression that is true for the pods that a `training` selector may match."""
    if not policy.training:
        return NO_PODS
    text = " || ".join(_selector(selector) for selector in policy.training)
    return text if len(text) <= _MAX_EXPRESSION_CHARS else "true"


def publish(registration: Mapping[str, Any], selector_expression: str) -> list[Operation]:
    """Returns a JSON Patch that sets the expression of the registration's entry, if it differs."""
    for i, entry in enumerate(registration.get("webhooks") or ()):
        if entry.get("name") != ENTRY:
            continue
        for j, condition in enumerate(entry.get("matchConditions") or ()):
            if (
                condition.get("name") == CONDITION
                and condition.get("expression") != selector_expression
            ):
                path = f"/webhooks/{i}/matchConditions/{j}"
                return [
                    {"op": "test", "path": f"/webhooks/{i}/name", "value": ENTRY},
                    {"op": "test", "path": f"{path}/name", "value": CONDITION},
                    {"op": "replace", "path": f"{path}/expression", "value": selector_expression},
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
    """Converts a shell pattern with * and ? to an anchored RE2 expression.

    Sets such as [ab] are rare in names and are converted to "any one character". Too many pods may then be
    sent to the webhook, which decides exactly.
    """
    pattern = re.sub(r"\[[^\]]*\]", "?", pattern)
    parts = {"*": ".*", "?": "."}
    return "^" + "".join(parts.get(c, re.escape(c)) for c in pattern) + "$"


def _quoted(text: str) -> str:
    """Quotes a CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
