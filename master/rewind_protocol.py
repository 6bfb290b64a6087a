"""The bodies of calls about positions in a data set, and rewinds to them (decision 0032)."""

from typing import Annotated

from pydantic import BaseModel, Field

from master.protocol import CodeName, Count, Name, ProcessRequest, Reason, TaskId


class _Part(BaseModel):
    model_config = ProcessRequest.model_config


class EpochPosition(_Part):
    """The trained part of one epoch."""

    number: Count
    cursor: Count
    """Places in the epoch's order that were reached."""
    todo: list[Annotated[list[Count], Field(min_length=2, max_length=2)]]
    """Tasks before it that are to do: number, and how many records of its front are trained."""
    ahead: list[Count]
    """Tasks behind it that are not free: done, or among those to do."""
    dropped: Count


class LedgerPosition(_Part):
    """The trained part of a data set."""

    shape: CodeName
    """Stands for the description of the data set."""
    opened: Count
    """Epochs that were begun."""
    open: list[EpochPosition]
    """Those of them that are not complete."""
    totals: Annotated[list[Count], Field(min_length=4, max_length=4)]
    """Tasks and records that are done, tasks and records that were dropped."""
    steps: Count
    """In tasks of the data set; an older master counted those of all."""


class PositionRequest(ProcessRequest):
    """Asks for the position in a data set."""

    dataset: Name
    tasks: list[TaskId] = Field(default_factory=list)
    """The answer names those of them that are done or dropped."""


class RewindRequest(ProcessRequest):
    """A model is restored, and all records that it lacks are trained again; see decision 0032."""

    dataset: Name
    event: Name
    """Identifies the event, as in a report of lost work."""
    reason: Reason
    version: Count
    """The version of the model: evaluations of later versions are discarded."""
    position: LedgerPosition | None
    """The position with the checkpoint; null for the beginning."""
    remaining: dict[TaskId, Count] = Field(default_factory=dict)
    """Task -> records of its end that the model lacks, where it has more than the position."""
    term: Count | None = None
    """The term that the caller has begun, as the leader of a group."""
    generation: Count | None = None
    """Otherwise the generation of parameter servers that the caller is about to start,"""
    ticket: Count = 0
    """and its ticket to do so."""
