"""The status of the job for users, the reconciler and Prometheus. Pure."""

from dataclasses import dataclass

from master.ledger import Ledger
from master.liveness import Liveness
from master.types import Json


@dataclass(slots=True)
class ServiceCounters:
    """Counters of this process since its start."""

    leased: int = 0
    acknowledged: int = 0
    stale: int = 0
    """Reports that came too late, or of unknown tasks."""
    writes: int = 0
    snapshots: int = 0


LEADER_COST_S = 10.0
"""What losing the trainer of rank 0 costs the others: another one must take over the lead."""


def report(
    ledger: Ledger, liveness: Liveness, counters: ServiceCounters, rendezvous: Json, now_s: float
) -> Json:
    """The answer to `GET /v1/status`."""
    ranks = {member["trainer"]: member["rank"] for member in rendezvous["members"]}
    trainers = {}
    for trainer in ledger.trainers:
        records, seconds = liveness.uncommitted(trainer.name, now_s)
        rank = ranks.get(trainer.name)
        if rank == 0:
            seconds = max(seconds, LEADER_COST_S)
        trainers[trainer.name] = {
            "held": len(trainer.leases),
            "records": trainer.records,
            "tasks": trainer.tasks,
            "steps": trainer.steps,
            "failures": trainer.failures,
            "uncommitted_records": records,
            "uncommitted_s": round(seconds, 3),
            "heard_s_ago": round(liveness.silence_s(trainer.name, now_s), 3),
            "joined": trainer.name not in ledger.settling,
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
        "datasets": {name: dataset.progress() for name, dataset in ledger.datasets.items()},
        "dropped": ledger.dropped,
        "failures": ledger.failures,
        "trainers": trainers,
        "rendezvous": rendezvous,
        "setbacks": ledger.rollbacks.to_json(),
        "checkpoint": ledger.checkpoint,
        "evaluations": [
            {"dataset": dataset.name, **evaluation.to_json()}
            for dataset in ledger.datasets.values()
            for evaluation in dataset.evaluations
        ],
        "counts": {
            "leased": counters.leased,
            "acknowledged": counters.acknowledged,
            "stale": counters.stale,
            "journal_writes": counters.writes,
            "snapshots": counters.snapshots,
        },
    }


def outcome(ledger: Ledger) -> str:
    """The job's end as the ConfigMap contains it; "" while the job continues."""
    state = ledger.state()
    if state == "failed":
        return f"failed: {ledger.failed}"
    return state if state == "done" else ""
