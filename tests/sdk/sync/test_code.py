"""The entries that must be the same in all members, and the defaults of `train`."""

import inspect
from types import SimpleNamespace
from typing import Any

import edl
import pytest
from edl.data.batches import describe
from edl.sync.options import RunSpec
from edl.sync.shared_code import PROTOCOL, shared_code

from tests.sdk.sync.replicas import data

FILES: dict[str, Any] = {"files": [{"name": "a", "records": 3}, {"name": "b", "records": 4}]}


def _code(*, constant: bool = True, name: str = "points", **about: Any) -> dict[str, str]:
    options: Any = SimpleNamespace(
        batch_size=10, micro_batches=4, constant_batch=constant, code={"model": "a1"}
    )
    description = {"records": 512, "task_records": 8, "epochs": 2, "shuffle_seed": None, **about}
    dataset: Any = SimpleNamespace(name=name)
    spec = RunSpec(dataset=dataset, description=description, options=options)
    return shared_code(68, spec)


def test_members_compare_model_batch_data_and_what_the_program_says() -> None:
    """Entry by entry, as text that a person can compare."""
    assert _code() == {
        "edl_sdk": PROTOCOL,
        "gradient": "68 numbers",
        "batch": "10 records in 4 micro-batches",
        "data": "points of 512 records, task_records 8, epochs 2, shuffle_seed None",
        "model": "a1",
    }


def test_where_batches_follow_the_members_only_their_parts_must_be_alike() -> None:
    """Rounded up, as they are cut."""
    assert _code(constant=False)["batch"] == "micro-batches of 3 records"


def test_files_count_with_all_their_records() -> None:
    """The master takes no entry of more than 300 characters."""
    assert _code(**FILES)["data"].startswith("points of 7 records, ")
    assert len(_code(name="n" * 400)["data"]) == 300


def test_members_permute_the_same_files() -> None:
    """Others would train other records at the same place."""
    assert _code(record_order="feistel-1 f00d")["order"] == "feistel-1 f00d"


def test_what_a_program_does_not_say_is_always_the_same() -> None:
    """As the documentation shows it."""
    parameters = inspect.signature(edl.sync.train).parameters.values()

    assert {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    } == {
        "micro_batches": 8,
        "epochs": None,
        "shuffle_seed": None,
        "shuffle": "records",
        "task_records": None,
        "constant_batch": True,
        "code": None,
        "checkpoints": None,
        "checkpoint_steps": 0,
        "on_nan": "fail",
        "seed": 0,
        "on_step": None,
        "between": None,
        "member": None,
    }


@pytest.mark.parametrize(("task_records", "least"), [(None, 32), (5, 5)])
def test_a_description_is_for_training_that_keeps_epochs_apart(
    task_records: int | None, least: int
) -> None:
    """Unless it says otherwise."""
    description = describe(data(2048), 32, epochs=3, shuffle_seed=9, task_records=task_records)

    assert description.pop("record_order").startswith("feistel-2 ")
    assert description == {
        "records": 2048,
        "task_records": least,
        "epochs": 3,
        "shuffle_seed": 9,
        "kind": "training",
        "overlap": False,
    }
