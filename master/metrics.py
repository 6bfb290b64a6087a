"""The master's metrics: how fast it answers, and the state of the ledger."""

from runtime.call_checks import Json
from runtime.call_metrics import CallMetrics
from runtime.metrics import Metrics

_TOTALS = {
    "lost_records_total": "Records that were trained and lost with their trainer.",
    "trained_again_records_total": "Records that two trainers acknowledged.",
    "rollbacks_total": "Rollbacks of the model's state.",
    "redone_records_total": "Records that are trained again after rollbacks.",
    "journal_failures_total": "Writes to the journal that failed: calls were refused, or it grows.",
    "snapshot_failures_total": "Snapshots that could not be stored in the cluster.",
}
"""Counters whose value is one number in the status: name -> documentation."""
_RECORDS = "Records by the outcome of their tasks; records that are trained again count again."
_LOSS = "{} lost by rollbacks of the model's state; reports of trainers may also lower it."


class MasterMetrics:
    """All metrics of one master process."""

    def __init__(self) -> None:
        metrics = Metrics("master")
        self.metrics = metrics
        self._records: dict[str, float] = {}
        self.calls = CallMetrics(metrics)
        self._tasks = metrics.gauge("tasks", "Tasks by outcome, of all epochs.", ("outcome",))
        self._trainers = metrics.gauge("trainers", "Trainers that have joined.")
        self._generation = metrics.gauge("generation", "Grows when another master takes over.")
        self._members = metrics.gauge(
            "rendezvous_members", "Members of the round that trains together."
        )
        self._round = metrics.gauge("rendezvous_round", "Number of the newest round.")
        self._rollback_steps = metrics.gauge("rollback_lost_steps", _LOSS.format("Steps"))
        self._rollback_records = metrics.gauge("rollback_lost_records", _LOSS.format("Records"))
        metrics.totals("records_total", _RECORDS, "outcome", lambda: self._records)
        self._totals = metrics.scraped_totals(_TOTALS)

    def text(self, status: Json) -> bytes:
        """Returns the answer to a scrape."""
        datasets = status["datasets"].values()
        for outcome in ("done", "leased", "returned", "dropped"):
            total = sum(dataset[f"{outcome}_tasks"] for dataset in datasets)
            self._tasks.labels(outcome).set(total)
        self._records = {
            outcome: sum(dataset[f"{outcome}_records"] for dataset in datasets)
            for outcome in ("done", "dropped")
        }
        redone = sum(dataset["redone_records"] for dataset in datasets)
        self._records["done"] += redone  # a rewind must not decrease the counter
        self._trainers.set(len(status["trainers"]))
        self._generation.set(status["generation"])
        self._members.set(len(status["rendezvous"]["members"]))
        self._round.set(status["rendezvous"]["round"])
        rollbacks = status["setbacks"]
        self._rollback_steps.set(rollbacks["steps"])
        self._rollback_records.set(rollbacks["records"])
        self._totals |= {
            "lost_records_total": status["lost_records"],
            "trained_again_records_total": status["trained_again_records"],
            "rollbacks_total": rollbacks["count"],
            "redone_records_total": redone,
            "journal_failures_total": status["counts"]["failed_writes"],
            "snapshot_failures_total": status["counts"]["failed_snapshots"],
        }
        return self.metrics.text()
