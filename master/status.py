"""The status of the job, for users, the reconciler and Prometheus. Pure."""

from dataclasses import dataclass, field

from master import rewinds
from master.ledger import Ledger
from master.liveness import Liveness
from runtime.call_checks import Json, RefusedError


@dataclass(slots=True)
class ServiceCounters:
    """Counters of this process since its start."""

    leased: int = 0
    acknowledged: int = 0
    stale: int = 0
    """Reports that came too late, or named unknown tasks."""
    writes: int = 0
    snapshots: int = 0
    failed_writes: int = 0
    """Failed writes of commands, whose calls were refused, and failed attempts to shorten the journal."""
    failed_snapshots: int = 0
    storage_errors: dict[str, str] = field(default_factory=dict)
    """Consequence of a failed write, for users -> the error; empty while all writes succeed."""

    def note_write(self, what: str, error: str = "") -> None:
        """Records that a write succeeded or failed.

        Args:
            what: The consequence of a failure, for users.
            error: The error; "" if the write succeeded.
        """
        if error:
            self.storage_errors[what] = error
        else:
            self.storage_errors.pop(what, None)


LEADER_COST_S = 10.0
"""Cost of losing the trainer of rank 0, in seconds: another trainer must take over the lead."""


def report(
    ledger: Ledger, liveness: Liveness, counters: ServiceCounters, rendezvous: Json, now_s: float
) -> Json:
    """Returns the answer to `GET /v1/status`."""
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
        "storage_errors": [
            f"{what}: {error}" for what, error in sorted(counters.storage_errors.items())
        ],
        "dropped": ledger.dropped,
        "failures": ledger.failures,
        "trainers": trainers,
        "rendezvous": rendezvous,
        "setbacks": ledger.rollbacks.to_json(),
        "checkpoint": ledger.checkpoint,
        "evaluations": [
            {"dataset": dataset.name, **_without_additive_metrics(evaluation.to_json())}
            for dataset in ledger.datasets.values()
            for evaluation in dataset.evaluations
        ],
        "counts": {
            "leased": counters.leased,
            "acknowledged": counters.acknowledged,
            "stale": counters.stale,
            "journal_writes": counters.writes,
            "snapshots": counters.snapshots,
            "failed_writes": counters.failed_writes,
            "failed_snapshots": counters.failed_snapshots,
        },
    }


def evaluation(ledger: Ledger, model_version: int) -> Json:
    """Returns the answer to `GET /v1/evaluations/{model_version}`.

    Raises:
        RefusedError: No evaluation of this version was requested.
    """
    rounds = [
        {"dataset": dataset.name, **evaluation.to_json()}
        for dataset in ledger.datasets.values()
        for evaluation in dataset.evaluations
        if evaluation.model_version == model_version
    ]
    if not rounds:
        raise RefusedError(
            404, f"no evaluation of version {model_version} was requested", "model_version"
        )
    return {"model_version": model_version, "rounds": rounds}


def position(ledger: Ledger, name: str, tasks: list[str]) -> Json:
    """Returns the answer to `POST /v1/position`.

    Args:
        ledger: The ledger.
        name: The data set.
        tasks: Tasks of the data set; the answer names the ones that are done or dropped.

    Raises:
        RefusedError: The data set does not exist.
    """
    dataset = ledger.datasets.get(name)
    if dataset is None:
        text = f"data set {name!r:.60} does not exist: describe it first"
        raise RefusedError(404, text, "dataset")
    return {
        "position": rewinds.position(dataset),
        "settled": rewinds.settled(dataset, tasks),
        "generation": dataset.rewinds.generation,
        "base": dataset.rewinds.base,
    }


def outcome(ledger: Ledger) -> str:
    """Returns the end of the job for the ConfigMap; "" while the job continues."""
    state = ledger.state()
    if state == "failed":
        return f"failed: {ledger.failed}"
    return state if state == "done" else ""


def _without_additive_metrics(evaluation: Json) -> Json:
    """Returns an evaluation without the hundreds of sums of additive metrics (`edl.model.metrics`)."""
    means = evaluation["metrics"]
    return {**evaluation, "metrics": {n: mean for n, mean in means.items() if not n.endswith("]")}}
