"""The job as people, the reconciler and Prometheus see it. Pure."""

from dataclasses import dataclass
from typing import Any

from master.ledger import Ledger
from master.liveness import Liveness

Json = dict[str, Any]


@dataclass(slots=True)
class Counts:
    """Of this process."""

    leased: int = 0
    acknowledged: int = 0
    stale: int = 0
    """Reports that came too late, or of tasks nobody knows."""
    writes: int = 0
    snapshots: int = 0


LEADER_COST_S = 10.0
"""What losing the trainer of rank 0 costs the others: the lead goes over to another one."""


def report(ledger: Ledger, liveness: Liveness, counts: Counts, meeting: Json, now_s: float) -> Json:
    """What `GET /v1/status` says."""
    ranks = {one["trainer"]: one["rank"] for one in meeting["members"]}
    trainers = {}
    for one in ledger.members:
        records, seconds = liveness.uncommitted(one.name, now_s)
        rank = ranks.get(one.name)
        if rank == 0:
            seconds = max(seconds, LEADER_COST_S)
        trainers[one.name] = {
            "held": len(one.held),
            "records": one.records,
            "tasks": one.tasks,
            "steps": one.steps,
            "failures": one.failures,
            "uncommitted_records": records,
            "uncommitted_s": round(seconds, 3),
            "heard_s_ago": round(liveness.age_s(one.name, now_s), 3),
            "joined": one.name not in ledger.settling,
            "rank": rank,
        }
    return {
        "job": ledger.job,
        "state": ledger.state(),
        "reason": ledger.failed,
        "generation": ledger.generation,
        "steps": ledger.steps,
        "max_steps": ledger.max_steps,
        "lost_records": ledger.lost_records,
        "trained_again_records": ledger.trained_again_records,
        "datasets": {name: one.progress() for name, one in ledger.datasets.items()},
        "dropped": ledger.dropped,
        "failures": ledger.failures,
        "trainers": trainers,
        "rendezvous": meeting,
        "setbacks": ledger.setbacks.shown(),
        "checkpoint": ledger.checkpoint,
        "evaluations": [
            {"dataset": one.name, **each.told()}
            for one in ledger.datasets.values()
            for each in one.rounds
        ],
        "counts": {
            "leased": counts.leased,
            "acknowledged": counts.acknowledged,
            "stale": counts.stale,
            "journal_writes": counts.writes,
            "snapshots": counts.snapshots,
        },
    }


def outcome(ledger: Ledger) -> str:
    """The job's end as the ConfigMap says it; "" while it goes on."""
    state = ledger.state()
    if state == "failed":
        return f"failed: {ledger.failed}"
    return state if state == "done" else ""
