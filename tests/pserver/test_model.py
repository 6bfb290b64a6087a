"""Comparison of two trainers' models: the error names the difference."""

from typing import Any

import pytest
from edl_protocol.pserver import Model

from pserver.model import check_same
from runtime.call_checks import RefusedError, check_fields
from tests.pserver.builders import model


def test_equal_models_may_be_written_differently() -> None:
    """Defaults may be given or omitted."""
    other = model(
        optimizer={"kind": "sgd", "learning_rate": 1},
        rules={"modulate": False, "checkpoint_seconds": 0},
    )

    check_same(model(), other)
    check_same(
        model(optimizer={"kind": "momentum", "learning_rate": 1.0}),
        model(optimizer={"kind": "momentum", "learning_rate": 1.0, "momentum": 0.9}),
    )


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        (
            {"parameters": {"w": [2, 4], "b": [2]}},
            "parameters.w",
            r"'w' has shape \[2, 3\] at the servers and has shape \[2, 4\] in this trainer",
        ),
        ({"parameters": {"w": [2, 3]}}, "parameters.b", "is missing in this trainer"),
        ({"parameters": {"w": [2, 3], "b": [2], "c": [1]}}, "parameters.c", "missing at the serv"),
        (
            {"tables": {"words": {"dim": 3, "init": 0.5, "seed": 7}}},
            "tables.words",
            "has dim 2, init 0.5, seed 7 at the servers and has dim 3",
        ),
        ({"tables": {}}, "tables.words", "is missing in this trainer"),
        ({"optimizer": {"kind": "adam", "learning_rate": 1.0}}, "optimizer.kind", "'sgd' at the"),
        (
            {"optimizer": {"kind": "sgd", "learning_rate": 0.5}},
            "optimizer.learning_rate",
            "1.0 at the servers and 0.5 in this",
        ),
        ({"rules": {"max_staleness": 3}}, "rules.max_staleness", "None at the servers and 3"),
        ({"code": {"git": "abc"}}, "code.git", "None at the servers and 'abc' in this trainer"),
    ],
)
def test_what_differs_is_named_with_both_values(
    changes: dict[str, Any], field: str, message: str
) -> None:
    """409, one line."""
    with pytest.raises(RefusedError, match=message) as caught:
        check_same(model(), model(**changes))

    assert (caught.value.status, caught.value.field) == (409, field)
    assert "\n" not in str(caught.value)


def test_a_model_of_nothing_is_refused() -> None:
    """There would be nothing to train."""
    with pytest.raises(RefusedError, match="needs parameters or tables"):
        check_fields(
            Model, {"parameters": {}, "tables": {}, "optimizer": {"kind": "sgd"}, "rules": {}}
        )
