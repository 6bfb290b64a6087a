import json
from typing import Any

import pytest
from pydantic import ValidationError

from extender import wire
from policy.planning.victims import Candidate
from tests.extender.vectors import sent


def _leaves(value: Any) -> list[Any]:
    """Everything in an answer that is neither object nor array."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


@pytest.mark.parametrize("name", ["filter", "prioritize"])
def test_reads_what_kube_scheduler_sends(name: str) -> None:
    """PascalCase outside, the pod as core/v1 has it, `Nodes` not looked at."""
    args = wire.ExtenderArgs.model_validate(sent(name))

    assert args.node_names[:2] == ["n0", "n1"]
    assert args.pod["metadata"]["name"] == "net-trainer-7"


def test_reads_candidates() -> None:
    """Nodes with their victims by uid, and how many budgets they would violate."""
    args = wire.PreemptionArgs.model_validate(sent("preempt"))

    assert args.candidates() == (
        Candidate("n0", ("11111111-8d1b-4a55-9c2e-6a0f3e8f9d11",), 0),
        Candidate(
            "n1",
            (
                "22222222-8d1b-4a55-9c2e-6a0f3e8f9d11",
                "33333333-8d1b-4a55-9c2e-6a0f3e8f9d11",
            ),
            1,
        ),
    )


def test_candidates_may_have_no_victims() -> None:
    """From 1.38 on; and Go writes an empty list as null."""
    args = wire.PreemptionArgs.model_validate(sent("preempt-empty"))

    assert args.candidates() == (Candidate("n0", ()), Candidate("n1", ()))


def test_unknown_keys_are_ignored() -> None:
    """A newer kube-scheduler may send more."""
    body = sent("preempt") | {"Profile": "default", "PodGroup": None}
    body["NodeNameToMetaVictims"]["n0"]["Reason"] = "new"

    assert len(wire.PreemptionArgs.model_validate(body).candidates()) == 2


@pytest.mark.parametrize(
    ("model", "name", "field"),
    [
        (wire.ExtenderArgs, "filter-nodes", "NodeNames"),
        (wire.PreemptionArgs, "preempt-pods", "NodeNameToMetaVictims"),
    ],
)
def test_the_form_without_node_cache_is_refused_by_field(
    model: type[wire.ExtenderArgs] | type[wire.PreemptionArgs], name: str, field: str
) -> None:
    """`nodeCacheCapable: false` sends whole nodes and pods, and null where we read."""
    with pytest.raises(ValidationError, match=field):
        model.model_validate(sent(name))


def test_more_names_than_any_cluster_has_are_refused() -> None:
    """The work of an answer is bounded."""
    with pytest.raises(ValidationError, match="20000"):
        wire.ExtenderArgs.model_validate({"Pod": {}, "NodeNames": ["n"] * 20_001})


@pytest.mark.parametrize(
    "answer",
    [
        wire.filter_result(["a"], {"b": "Cooling"}, {}),
        wire.filter_result([], {}, {}),
        wire.priorities({"a": 10, "b": 0}),
        wire.priorities({}),
        wire.preemption_result([]),
        wire.preemption_result([Candidate("a", ("u", "v"), 2)]),
    ],
)
def test_nothing_in_an_answer_is_null_and_numbers_are_integers(answer: object) -> None:
    """kube-scheduler dereferences a null, and cannot decode 5.0."""
    text = json.dumps(answer)

    assert "null" not in text
    assert all(type(leaf) in (str, int) for leaf in _leaves(answer))


def test_a_filter_answer_has_the_four_fields() -> None:
    """`Error` stays empty: a text in it would end the attempt without preemption."""
    assert wire.filter_result(["a"], {"b": "x"}, {"c": "y"}) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "x"},
        "FailedAndUnresolvableNodes": {"c": "y"},
        "Error": "",
    }


def test_priorities_are_a_bare_array() -> None:
    """Without a wrapper."""
    assert wire.priorities({"a": 10}) == [{"Host": "a", "Score": 10}]


def test_candidates_are_answered_by_node() -> None:
    """In the form with uids, whatever the form of the question."""
    assert wire.preemption_result([Candidate("a", ("u",), 1), Candidate("b", ("v",))]) == {
        "NodeNameToMetaVictims": {
            "a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1},
            "b": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0},
        }
    }
    assert wire.preemption_result([]) == {"NodeNameToMetaVictims": {}}
