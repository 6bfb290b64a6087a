"""The text of a snapshot: everything that a plan depends on, as JSON with a version. Pure.

Fields with their default value are left out. A text is checked field by field, because people send such
files to each other: unknown fields, other versions and truncated files are rejected in one line.
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
"""Version of the text; it grows with every change after which an older reader would plan differently."""
MAX_BYTES = 128 * 2**20
"""About five times the size of a snapshot of 5 000 nodes with 50 000 pods."""
_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The contents of a snapshot file."""

    input: PlanInput
    decided: Plan | None = field(default=None, repr=False)
    """The plan that the reconciler made from it, reduced to the fields that comparisons read."""
    complete: bool = True
    """Whether it contains the reconciler's memory, which cannot be read from the API server."""


class _Document(BaseModel):
    """The fields of the file. Mappings whose keys are tuples are lists here, because JSON has no such keys."""

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
    """Returns the text of a snapshot in UTF-8."""
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
    """Parses the text of a snapshot.

    Raises:
        SnapshotError: the text is not a snapshot, has another version, or is truncated or damaged; the
            message is one line.
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
    """Returns the first invalid fields and the number of further ones, in one line."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults]
    others = [f"and {len(lines) - _MAX_PROBLEMS} more"] if len(lines) > _MAX_PROBLEMS else []
    return "; ".join([*lines[:_MAX_PROBLEMS], *others])


def comparable(plan: Plan) -> Plan:
    """Returns the part of a plan that comparisons read: actions and reasons, not notes for the next plan."""
    return Plan(
        plan.jobs,
        plan.creates,
        plan.releases,
        plan.server_creates,
        plan.server_releases,
        plan.reclaimed_for,
        gave_up=plan.gave_up,
    )
