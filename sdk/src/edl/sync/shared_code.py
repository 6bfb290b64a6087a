"""The code of a synchronous run: entries that the master compares between members."""

from __future__ import annotations

from edl.master import protocol
from edl.sync.options import RunSpec

PROTOCOL = "protocol 5"
"""Changes with each change of the messages between members; other versions are refused."""
_MAX_CODE = 300
"""Length of the longest entry that the master accepts, in characters."""


def shared_code(size: int, spec: RunSpec) -> dict[str, str]:
    """Returns the entries that must be the same in all members.

    Args:
        size: Number of values in the model's gradient.
        spec: The run's data set and options.
    """
    options, description = spec.options, spec.description
    batch = f"{options.batch_size} records in {options.micro_batches} micro-batches"
    if not options.constant_batch:
        batch = f"micro-batches of {-(-options.batch_size // options.micro_batches)} records"
    return {
        "edl_sdk": PROTOCOL,
        "gradient": f"{size} numbers",
        "batch": batch,
        "data": _describe_dataset(spec.dataset.name, description),
        **_describe_order(description),
        **options.code,
    }


def _describe_dataset(name: str, description: protocol.Json) -> str:
    """Returns a line about the data set that must be the same in all members."""
    files = description.get("files")
    records = description.get("records") if files is None else sum(f["records"] for f in files)
    keys = ("task_records", "epochs", "shuffle_seed")
    options = ", ".join(f"{key} {description[key]}" for key in keys)
    return f"{name} of {records} records, {options}"[:_MAX_CODE]


def _describe_order(description: protocol.Json) -> dict[str, str]:
    """Returns a separate entry with the order of records, because messages cut long entries."""
    order = description.get("record_order")
    return {} if order is None else {"order": str(order)[:_MAX_CODE]}
