"""Two trainers that do not train the same are told what differs."""

from typing import Any

import pytest
from pydantic import ValidationError

from pserver.errors import RefusedError
from pserver.model import Model, check_same
from tests.pserver.worlds import model


def test_the_same_model_is_the_same_however_it_is_told() -> None:
    """Defaults may be said or not."""
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
    ("changes", "field", "said"),
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
    changes: dict[str, Any], field: str, said: str
) -> None:
    """409, one line."""
    with pytest.raises(RefusedError, match=said) as caught:
        check_same(model(), model(**changes))

    assert (caught.value.status, caught.value.named) == (409, field)
    assert "\n" not in str(caught.value)


def test_a_model_of_nothing_is_refused() -> None:
    """There would be nothing to train."""
    with pytest.raises(ValidationError, match="needs parameters or tables"):
        Model.model_validate(
            {"parameters": {}, "tables": {}, "optimizer": {"kind": "sgd"}, "rules": {}}
        )
