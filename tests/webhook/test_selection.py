"""The selection of other operators' pods that the API server sends to the webhook."""

import re
from typing import Any

import jsonpatch
import pytest

from policy.document.model import Policy, Training
from webhook import selection


def registration(expression: str) -> dict[str, Any]:
    """A configuration with our entry behind another one."""
    condition = {"name": selection.CONDITION, "expression": expression}
    entry = {"name": selection.ENTRY, "matchConditions": [condition]}
    return {"webhooks": [{"name": "pods.webhook.edl.training"}, entry]}


def policy(*selectors: Training) -> Policy:
    """A policy with these training selectors."""
    return Policy(training=selectors)


def test_without_selectors_no_pod_is_shown() -> None:
    """A policy that names no other operators keeps all their pods off the wire."""
    assert selection.expression(Policy()) == "false"


def test_labels_and_namespaces_are_both_asked() -> None:
    """A selector with both becomes a conjunction, two selectors an alternative."""
    text = selection.expression(
        policy(
            Training(name="a", namespaces=("ml-*",), labels={"team": "x?"}),
            Training(name="b", labels={"ray.io/cluster": "*"}),
        )
    )

    assert text == (
        "((request.namespace.matches('^ml\\\\-.*$')) && has(object.metadata.labels) && "
        "'team' in object.metadata.labels && object.metadata.labels['team'].matches('^x.$')) || "
        "(has(object.metadata.labels) && 'ray.io/cluster' in object.metadata.labels && "
        "object.metadata.labels['ray.io/cluster'].matches('^.*$'))"
    )


def test_a_namespace_alone_is_enough() -> None:
    """A selector without labels asks for the namespace only."""
    text = selection.expression(policy(Training(name="a", namespaces=("batch",))))

    assert text == "((request.namespace.matches('^batch$')))"


@pytest.mark.parametrize("label", ["it's", "a\\b", "line\nbreak"])
def test_quotes_cannot_break_out(label: str) -> None:
    """Any label name stays inside its string literal."""
    text = selection.expression(policy(Training(name="a", labels={label: "x"})))

    inside = re.findall(r"'((?:[^'\\]|\\.)*)'", text)
    assert inside[0].replace("\\n", "\n").replace("\\'", "'").replace("\\\\", "\\") == label


def test_too_many_selectors_show_every_pod() -> None:
    """Rather than an expression over the cost limit, every pod is shown."""
    many = tuple(Training(name=f"n{i}", labels={f"label-{i}": "x" * 50}) for i in range(300))

    assert selection.expression(policy(*many)) == "true"


def test_publish_changes_the_one_expression() -> None:
    """The patch replaces our condition and nothing else, and none is needed the second time."""
    before = registration("false")

    after = jsonpatch.apply_patch(before, selection.publish(before, "true"))

    assert after == registration("true")
    assert selection.publish(after, "true") == []


def test_a_registration_without_the_entry_is_left_alone() -> None:
    """An admin may have taken the entry or its condition out."""
    assert selection.publish({"webhooks": [{"name": "other"}]}, "true") == []
    assert selection.publish({}, "true") == []
