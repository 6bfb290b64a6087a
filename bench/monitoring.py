"""`python -m bench.monitoring`: writes Grafana's dashboards and the operator's form of the alerts.

Sources: `DASHBOARDS` here and deploy/monitoring/rules.yaml. Grafana's JSON model:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runtime.command_line import Parser

FOLDER = Path(__file__).parents[1] / "deploy" / "monitoring"
RULES = FOLDER / "rules.yaml"
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEAD = "# Written by `make monitoring` from rules.yaml; do not edit it.\n"


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph over time.

    Attributes:
        title: What it shows.
        unit: Grafana's name of the unit; "short" for counts.
        queries: PromQL expression -> legend.
        stacked: Whether the values add up.
    """

    title: str
    unit: str
    queries: dict[str, str]
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels, two in a row."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def _quantiles(metric: str, by: str = "") -> dict[str, str]:
    labels = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    buckets = f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval]))"
    return {
        f"histogram_quantile({share}, {buckets})": f"{legend}{name}"
        for share, name in ((0.5, "median"), (0.99, "p99"))
    }


def _rate(metric: str, by: str) -> dict[str, str]:
    return {f"sum by ({by}) (rate({metric}[$__rate_interval]))": f"{{{{{by}}}}}"}


def _of_jobs(metric: str) -> dict[str, str]:
    return {f"sum by (namespace, job) ({metric})": "{{namespace}}/{{job}}"}


_SERVICES = Dashboard(
    "edl-services",
    "EDL: services' waits",
    (
        Panel(
            "From creation to running, by what a service waited for",
            "s",
            _quantiles("edl_reconciler_service_start_seconds", "cause"),
        ),
        Panel(
            "Services that began to run",
            "short",
            {
                "sum by (cause) (increase(edl_reconciler_service_start_seconds_count"
                "[$__rate_interval]))": "{{cause}}"
            },
            stacked=True,
        ),
        Panel(
            "Reclaim: from creation to a node that trainers left",
            "s",
            _quantiles("edl_reconciler_reclaim_seconds"),
        ),
        Panel(
            "Services without a node", "short", {"sum(edl_reconciler_services_waiting)": "waiting"}
        ),
        Panel(
            "Wait of the oldest service that trainers keep out",
            "s",
            {"max(edl_reconciler_starved_service_seconds)": "starved"},
        ),
        Panel(
            "Reclaim objective: how fast its budget is used, and what is left of it",
            "short",
            {
                "max by (span) (edl_reconciler_reclaim_objective_burn_rate and on (instance)"
                " edl_reconciler_leader == 1)": "burn rate {{span}}",
                "max(edl_reconciler_reclaim_objective_budget_left_ratio and on (instance)"
                " edl_reconciler_leader == 1)": "budget left",
            },
        ),
        Panel(
            "Reclaim objective: services that kept and that missed it",
            "short",
            {
                "sum by (result) (increase(edl_reconciler_reclaim_objective_services_total"
                "[$__rate_interval]))": "{{result}}"
            },
            stacked=True,
        ),
        Panel(
            "CPU",
            "short",
            {
                'sum by (use) (edl_reconciler_cpu_cores{use!="allocatable"})': "{{use}}",
                'sum(edl_reconciler_cpu_cores{use="allocatable"})': "allocatable",
            },
        ),
        Panel(
            "Memory",
            "bytes",
            {
                'sum by (use) (edl_reconciler_memory_bytes{use!="allocatable"})': "{{use}}",
                'sum(edl_reconciler_memory_bytes{use="allocatable"})': "allocatable",
            },
        ),
        Panel(
            "Devices",
            "short",
            {"sum by (resource, use) (edl_reconciler_devices)": "{{resource}} {{use}}"},
        ),
    ),
)
_JOBS = Dashboard(
    "edl-jobs",
    "EDL: jobs' shares, losses, reasons",
    (
        Panel("Trainers that run", "short", _of_jobs("edl_reconciler_job_running_trainers"), True),
        Panel("Weighted shares", "percentunit", _of_jobs("edl_reconciler_job_share_ratio")),
        Panel(
            "Missing trainers: wanted and not running",
            "short",
            {
                "sum by (namespace, job) (edl_reconciler_job_wanted_trainers"
                " - edl_reconciler_job_running_trainers) > 0": "{{namespace}}/{{job}}"
            },
        ),
        Panel("Minimums", "short", _of_jobs("edl_reconciler_job_min_trainers")),
        Panel(
            "Jobs by the reason for their number of trainers",
            "short",
            {"sum by (reason) (edl_reconciler_jobs)": "{{reason}}"},
            stacked=True,
        ),
        Panel(
            "Jobs below their minimum",
            "short",
            {"sum by (reason) (edl_reconciler_jobs_below_min)": "{{reason}}"},
        ),
        Panel(
            "Releases of trainers",
            "ops",
            _rate("edl_reconciler_trainers_released_total", "reason"),
            stacked=True,
        ),
        Panel(
            "Training lost: seconds a second, by cause",
            "short",
            _rate("edl_reconciler_lost_seconds_total", "cause"),
            stacked=True,
        ),
        Panel(
            "New trainers",
            "ops",
            {
                **_rate("edl_reconciler_trainers_created_total", "tier"),
                "sum(rate(edl_reconciler_trainers_refused_total[$__rate_interval]))": "refused",
            },
        ),
        Panel(
            "Nodes that jobs avoid, jobs kept out of planning",
            "short",
            {
                "sum(edl_reconciler_nodes_avoided)": "nodes",
                "sum(edl_reconciler_jobs_quarantined)": "jobs",
            },
        ),
        Panel(
            "TrainingJobs that fail, and tries that failed",
            "short",
            {
                "max(edl_reconciler_training_jobs_failing)": "TrainingJobs",
                "sum(increase(edl_reconciler_training_job_failures_total[$__rate_interval]))": "tries",
            },
        ),
    ),
)
_EDL = Dashboard(
    "edl",
    "EDL itself",
    (
        Panel("Time to make a plan", "s", _quantiles("edl_reconciler_plan_seconds")),
        Panel("Extender: time to answer", "s", _quantiles("edl_extender_answer_seconds", "verb")),
        Panel("Webhook: time to answer", "s", _quantiles("edl_webhook_review_seconds", "verb")),
        Panel(
            "Calls",
            "ops",
            {
                "sum by (verb) (rate(edl_extender_answer_seconds_count[$__rate_interval]))": "{{verb}}",
                "sum by (verb, outcome) (rate(edl_webhook_reviews_total[$__rate_interval]))": (
                    "{{verb}} {{outcome}}"
                ),
            },
        ),
        Panel(
            "Age of what is known, and of the last answer for the lease",
            "s",
            {
                **{
                    f"max by (instance) (edl_{server}_watch_age_seconds)": f"{server} {{{{instance}}}}"
                    for server in ("extender", "reconciler", "webhook")
                },
                "max by (instance) (edl_reconciler_api_answer_age_seconds)": "lease {{instance}}",
            },
        ),
        Panel(
            "Certificates: time left",
            "s",
            {
                f"min(edl_{name}certificate_expiry_timestamp_seconds > 0) - time()": legend
                for name, legend in (
                    ("webhook_", "webhook"),
                    ("extender_", "extender"),
                    ("extender_client_", "kube-scheduler"),
                )
            },
        ),
        Panel(
            "Leader, and age of the last tick",
            "s",
            {
                "max by (instance) (edl_reconciler_leader)": "leads {{instance}}",
                "max by (instance) (edl_reconciler_tick_age_seconds)": "tick {{instance}}",
                "max by (instance) (edl_reconciler_training_jobs_pass_age_seconds)": (
                    "pass over TrainingJobs {{instance}}"
                ),
            },
        ),
        Panel(
            "Errors",
            "ops",
            {
                "sum(rate(edl_reconciler_rounds_failed_total[$__rate_interval]))": "failed ticks",
                "sum by (verb) (rate(edl_extender_errors_total[$__rate_interval]))": "extender {{verb}}",
                **{
                    f"sum by (kind) (rate(edl_{server}_watch_errors_total[$__rate_interval]))": (
                        f"watch of {server}: {{{{kind}}}}"
                    )
                    for server in ("extender", "reconciler", "webhook")
                },
            },
        ),
        Panel(
            "Connections dropped",
            "ops",
            {
                f"sum by (reason) (rate(edl_{server}_connections_dropped_total"
                "[$__rate_interval]))": f"{server} {{{{reason}}}}"
                for server in ("extender", "reconciler", "webhook")
            },
        ),
        Panel(
            "Policies in force",
            "short",
            {
                f"count by (version, stale) (edl_{server}_policy_info)": (
                    f"{server} {{{{version}}}} stale={{{{stale}}}}"
                )
                for server in ("extender", "reconciler", "webhook")
            },
        ),
    ),
)
DASHBOARDS = {"services": _SERVICES, "jobs": _JOBS, "edl": _EDL}
"""File name -> its content."""


def dashboard_json(dashboard: Dashboard) -> str:
    """Returns the page as Grafana imports it; its data source is a variable."""
    model = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["edl"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(model, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    position = {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
    custom = {"fillOpacity": 10, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _DATASOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(panel.queries.items())
        ],
    }


def prometheus_rule(rules: str) -> str:
    """Returns the rules as an object of the Prometheus Operator.

    Args:
        rules: Text of rules.yaml.
    """
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "edl",
            "namespace": "edl-system",
            "labels": {"app.kubernetes.io/part-of": "edl"},
        },
        "spec": yaml.safe_load(rules),
    }
    return _HEAD + yaml.safe_dump(rule, sort_keys=False, width=110)


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL expression) of all alerts and panels."""
    for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard.panels:
            for expression in panel.queries:
                yield f"{name}.json, {panel.title}", expression


def files() -> dict[str, str]:
    """Path in the folder -> text of all that is written."""
    pages = {f"dashboards/{name}.json": dashboard_json(page) for name, page in DASHBOARDS.items()}
    return pages | {"prometheusrule.yaml": prometheus_rule(RULES.read_text("utf-8"))}


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the files.

    Returns:
        0.
    """
    parser = Parser(prog="python -m bench.monitoring", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=FOLDER, help="the folder; default: %(default)s"
    )
    arguments = parser.parse_args(argv)
    for name, text in files().items():
        path: Path = arguments.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
