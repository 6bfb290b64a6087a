"""The text of a snapshot: all that a plan depends on, as JSON with a version. Pure.

Fields at their default are left out. What is read is checked field by field, because people send such
files to each other: unknown fields, other versions and halves of files are refused in one line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from policy.cluster.first_seen import OwnTimes
from policy.cluster.snapshot import Job, Node, Pod, Snapshot
from policy.document.model import Policy
from policy.errors import SnapshotError
from policy.planning.plan import FailedMove, History, MoveKey, Plan
from policy.planning.plan_input import PlanInput

KIND: Literal["edl.training/snapshot"] = "edl.training/snapshot"
VERSION: Literal[1] = 1
"""Grows with every change after which an older reader would plan something else."""
MAX_BYTES = 128 * 2**20
"""Some five times the snapshot of 5 000 nodes with 50 000 pods."""
_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The contents of one file."""

    input: PlanInput
    decided: Plan | None = field(default=None, repr=False)
    """The plan that the reconciler made of it: of `Plan`, what comparisons look at."""
    complete: bool = True
    """Whether it has what the reconciler remembers; the API server alone does not know that."""


class _Document(BaseModel):
    """The fields of the file. JSON has no keys of several values: these mappings are lists in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["edl.training/snapshot"] = KIND
    version: Literal[1] = VERSION
    at_s: float
    complete: bool = True
    policy: Policy = Policy()
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    history: History = History()
    failed_moves: tuple[tuple[MoveKey, FailedMove], ...] = ()
    tainted_since: tuple[tuple[str, str, float], ...] | None = None
    own_times: Mapping[str, OwnTimes] | None = None
    decided: Plan | None = None


def dumps(file: SnapshotFile) -> bytes:
    """The text of a snapshot, in UTF-8."""
    plan_input, history = file.input, file.input.history
    tainted = history.tainted_since
    document = _Document(
        at_s=plan_input.at_s,
        complete=file.complete,
        policy=plan_input.policy,
        nodes=plan_input.snapshot.nodes,
        pods=plan_input.snapshot.pods,
        jobs=plan_input.snapshot.jobs,
        history=replace(history, failed_moves={}, tainted_since=None),
        failed_moves=tuple(history.failed_moves.items()),
        tainted_since=None if tainted is None else tuple((*key, s) for key, s in tainted.items()),
        own_times=plan_input.own_times,
        decided=None if file.decided is None else comparable(file.decided),
    )
    fields = document.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return json.dumps({"kind": KIND, "version": VERSION, **fields}, allow_nan=False).encode()


def loads(text: bytes) -> SnapshotFile:
    """The snapshot in a text.

    Raises:
        SnapshotError: it is not a snapshot, one of another version, cut or damaged; in one line.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"not a whole snapshot: {error}") from error
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise SnapshotError(f'not a snapshot: it has no "kind": "{KIND}"')
    if fields.get("version") != VERSION:
        raise SnapshotError(
            f"a snapshot of version {str(fields.get('version'))[:20]}; this EDL reads version {VERSION}: "
            "use the EDL that wrote it"
        )
    try:
        document = _Document.model_validate(fields)
    except ValidationError as error:
        raise SnapshotError(f"damaged snapshot: {_problems(error)}") from error
    tainted = document.tainted_since
    history = replace(
        document.history,
        failed_moves=dict(document.failed_moves),
        tainted_since=None if tainted is None else {(node, key): s for node, key, s in tainted},
    )
    snapshot = Snapshot(document.nodes, document.pods, document.jobs)
    plan_input = PlanInput(document.at_s, snapshot, document.policy, history, document.own_times)
    return SnapshotFile(plan_input, document.decided, document.complete)


def _problems(error: ValidationError) -> str:
    """The first invalid fields in one line, and how many more there are."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults]
    others = [f"and {len(lines) - _MAX_PROBLEMS} more"] if len(lines) > _MAX_PROBLEMS else []
    return "; ".join([*lines[:_MAX_PROBLEMS], *others])


def comparable(plan: Plan) -> Plan:
    """What comparisons of plans look at: actions and reasons, without notes for the next plan."""
    return Plan(
        plan.jobs,
        plan.creates,
        plan.releases,
        plan.server_creates,
        plan.server_releases,
        plan.reclaimed_for,
        gave_up=plan.gave_up,
    )
